"""submit, enqueue, cancel and what they stand on."""

from runner.store.migrations.script import execute

revision = "0003_functions"
down_revision: str | None = "0002_queue"


def upgrade() -> None:
    """Apply this version."""
    execute("0003_functions.sql")
