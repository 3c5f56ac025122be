"""Tests of runner.config."""
