"""Tests of runner.gpu_types."""
