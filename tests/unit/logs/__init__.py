"""Tests of runner.base.logs."""
