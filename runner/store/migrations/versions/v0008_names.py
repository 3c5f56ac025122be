"""A host name is one daemon's at a time; what is given back is told; a batch may hold a result twice."""

from runner.store.migrations.script import execute

revision = "0008_names"
down_revision: str | None = "0007_again"


def upgrade() -> None:
    """Apply this version."""
    execute("0008_names.sql")
