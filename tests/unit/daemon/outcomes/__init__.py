"""Tests of runner.daemon.outcomes."""
