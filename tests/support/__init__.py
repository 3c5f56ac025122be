"""Helpers that tests of several parts use. No fixtures, and nothing of one part alone."""
