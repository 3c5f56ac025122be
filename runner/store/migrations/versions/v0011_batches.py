"""The final words of all submissions of a batch of results are written together."""

from runner.store.migrations.script import execute

revision = "0011_batches"
down_revision: str | None = "0010_unranked"


def upgrade() -> None:
    """Apply this version."""
    execute("0011_batches.sql")
