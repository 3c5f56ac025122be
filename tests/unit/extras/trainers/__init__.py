"""Tests of what serves trainers."""
