"""Tests of the daemon against a real PostgreSQL."""
