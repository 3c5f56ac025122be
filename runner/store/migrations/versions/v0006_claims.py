"""Submissions get turns; completion, failure and reclaim as one call each."""

from runner.store.migrations.script import execute

revision = "0006_claims"
down_revision: str | None = "0005_fairness"


def upgrade() -> None:
    """Apply this version."""
    execute("0006_claims.sql")
