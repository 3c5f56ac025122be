"""Unit tests of what the tests stand on."""
