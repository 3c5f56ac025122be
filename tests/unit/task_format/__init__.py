"""Task definitions: reading, refusing, storing."""
