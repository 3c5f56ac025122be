"""What is monitored, and what the documents say of it."""
