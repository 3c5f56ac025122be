"""Tests of runner.gpus."""
