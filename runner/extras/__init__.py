"""Guests: each has commands, optional dependencies and tests of its own, and the core imports none of them."""
