"""Tests of runner.base.gpu_types."""
