"""The gateway without a database."""
