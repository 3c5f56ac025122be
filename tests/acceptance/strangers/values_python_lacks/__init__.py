"""Values that PostgreSQL holds and Python does not."""
