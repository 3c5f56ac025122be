"""Tests of runner.daemon."""
