"""Schema `runner`: the queue's tables."""

from runner.store.migrations.script import execute

revision = "0002_queue"
down_revision: str | None = "0001_leaderboard"


def upgrade() -> None:
    """Apply this version."""
    execute("0002_queue.sql")
