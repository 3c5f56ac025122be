"""The baseline: all tables, types and indexes, as a database of version 0012 has them.

The revision keeps the name `0012_demands`, because databases that exist have recorded it. They skip the baseline.
"""

from runner.store.migrations.script import execute

revision = "0012_demands"
down_revision: str | None = None


def upgrade() -> None:
    """Apply this version."""
    execute("0012_leaderboard.sql")
    execute("0012_runner.sql")
