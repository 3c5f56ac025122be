"""Loads the shared fixtures; each lives in a plugin module of `tests/plugins`."""

pytest_plugins = ["tests.plugins.engine", "tests.plugins.images", "tests.plugins.postgres", "tests.plugins.turns"]
