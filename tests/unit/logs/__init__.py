"""Tests of runner.logs."""
