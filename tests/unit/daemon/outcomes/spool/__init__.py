"""Unit tests of the spool."""
