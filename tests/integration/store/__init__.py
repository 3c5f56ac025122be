"""The store against a real PostgreSQL."""
