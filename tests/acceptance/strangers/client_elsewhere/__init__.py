"""A client in an unusual process or loop."""
