"""The sandbox's pure parts, without an engine."""
