"""Groups of modules with real judges and workers."""
