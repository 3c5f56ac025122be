"""Traces of jobs for OpenTelemetry, made from what the database knows; beside the daemons, not in them."""
