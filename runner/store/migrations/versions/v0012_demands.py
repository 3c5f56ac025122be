"""A leaderboard says what it demands of a time before it ranks; every time that is shown says what it is worth."""

from runner.store.migrations.script import execute

revision = "0012_demands"
down_revision: str | None = "0011_batches"


def upgrade() -> None:
    """Apply this version."""
    execute("0012_demands.sql")
