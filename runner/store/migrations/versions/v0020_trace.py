"""The trace context of a submission: a table, and the function runner.trace beside it."""

from __future__ import annotations

from runner.store.migrations.script import execute

revision = "0020_trace"
down_revision = "0019_modules"


def upgrade() -> None:
    """Apply this version."""
    execute("0020_trace.sql")
