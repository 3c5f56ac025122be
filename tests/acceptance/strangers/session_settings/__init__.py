"""Settings of a session that a database, a role or the environment makes."""
