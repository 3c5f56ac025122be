"""The secret job of a ranked submission waits for its public job."""

from __future__ import annotations

from runner.store.migrations.script import execute

revision = "0022_follow"
down_revision = "0021_late"


def upgrade() -> None:
    """Apply this version."""
    execute("0022_follow.sql")
