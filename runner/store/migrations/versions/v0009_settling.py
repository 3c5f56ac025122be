"""A result whose submission is held by somebody makes nobody wait."""

from runner.store.migrations.script import execute

revision = "0009_settling"
down_revision: str | None = "0008_names"


def upgrade() -> None:
    """Apply this version."""
    execute("0009_settling.sql")
