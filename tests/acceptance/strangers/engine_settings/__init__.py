"""Settings of an engine for all of its containers."""
