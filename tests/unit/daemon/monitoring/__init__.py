"""Tests of runner.daemon.monitoring."""
