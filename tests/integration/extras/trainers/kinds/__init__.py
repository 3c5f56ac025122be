"""Groups of modules in real containers."""
