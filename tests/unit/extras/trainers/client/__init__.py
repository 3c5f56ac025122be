"""Tests of the client of batches that need nothing but Python."""
