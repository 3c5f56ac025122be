"""Dates with an offset."""
