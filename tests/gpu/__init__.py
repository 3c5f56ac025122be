"""Tests of kernel-runner."""
