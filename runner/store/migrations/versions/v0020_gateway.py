"""Logins of a browser by OAuth; a leaderboard's scores with their times come with the schema files."""

from runner.store.migrations.script import execute

revision = "0020_gateway"
down_revision = "0016_gateway"


def upgrade() -> None:
    """Apply this version."""
    execute("0020_gateway.sql")
