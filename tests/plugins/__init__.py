"""Fixtures shared by all test packages, one pytest plugin module per subject."""
