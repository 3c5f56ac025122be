"""Turns, causes, superseded results, and the state of hosts."""

from runner.store.migrations.script import execute

revision = "0005_fairness"
down_revision: str | None = "0004_views"


def upgrade() -> None:
    """Apply this version."""
    execute("0005_fairness.sql")
