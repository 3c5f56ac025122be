"""KernelBot's schema `leaderboard`, where KernelBot has not made it itself."""

from runner.store.migrations.script import execute

revision = "0001_leaderboard"
down_revision: str | None = None


def upgrade() -> None:
    """Apply this version."""
    execute("0001_leaderboard.sql")
