"""Evaluate again, take out of the ranking, drain hosts, forget what is old."""

from runner.store.migrations.script import execute

revision = "0007_again"
down_revision: str | None = "0006_claims"


def upgrade() -> None:
    """Apply this version."""
    execute("0007_again.sql")
