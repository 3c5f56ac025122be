"""Tests of runner.evaluation."""
