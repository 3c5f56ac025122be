"""Deadlines that Python has none for are refused; functions were changed since 0024."""

from __future__ import annotations

from runner.store.migrations.script import execute

revision = "0025_values"
down_revision = "0024_addresses"


def upgrade() -> None:
    """Apply this version."""
    execute("0025_values.sql")
