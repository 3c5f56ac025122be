"""The tools of a checkout."""
