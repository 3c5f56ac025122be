"""Modules, judged."""
