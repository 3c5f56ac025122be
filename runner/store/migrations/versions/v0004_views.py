"""What everyone may see: status, ranking, result."""

from runner.store.migrations.script import execute

revision = "0004_views"
down_revision: str | None = "0003_functions"


def upgrade() -> None:
    """Apply this version."""
    execute("0004_views.sql")
