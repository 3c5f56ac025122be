"""Texts that look like other values."""
