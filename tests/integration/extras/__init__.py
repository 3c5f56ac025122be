"""Tests of guests."""
