"""A user's own configuration of Docker's command."""
