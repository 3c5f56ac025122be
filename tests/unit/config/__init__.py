"""Tests of runner.base.config."""
