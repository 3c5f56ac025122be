"""Tests of runner.devices."""
