"""Claims begin at a mark, heartbeats renew one row a host, jobs that may not begin yet are outside the queue."""

from __future__ import annotations

from runner.store.migrations.script import execute

revision = "0015_scale"
down_revision = "0014_turns"


def upgrade() -> None:
    """Apply this version."""
    execute("0015_scale.sql")
