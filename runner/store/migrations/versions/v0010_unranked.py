"""A slot whose times do not count claims what is not ranked."""

from runner.store.migrations.script import execute

revision = "0010_unranked"
down_revision: str | None = "0009_settling"


def upgrade() -> None:
    """Apply this version."""
    execute("0010_unranked.sql")
