"""Groups of modules, planned and decided."""
