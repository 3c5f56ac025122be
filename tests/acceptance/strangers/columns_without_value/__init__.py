"""Columns without a value, and numbers that are none."""
