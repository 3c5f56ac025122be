"""The gateway over raw HTTP, on a real database, with outcomes as a daemon writes them."""
