"""Tests of the client of batches on a real database."""
