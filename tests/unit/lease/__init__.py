"""Tests of runner.lease."""
