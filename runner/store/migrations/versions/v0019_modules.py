"""Batches of module evaluations: owners, batches, sources, items and their results; a job may be a group of items."""

from __future__ import annotations

from runner.store.migrations.script import execute

revision = "0019_modules"
down_revision = "0018_web_login"


def upgrade() -> None:
    """Apply this version."""
    execute("0019_modules.sql")
