"""The built-in harness, one module at a time."""
