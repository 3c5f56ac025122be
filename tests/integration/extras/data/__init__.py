"""The data export and its checks, over a real PostgreSQL."""
