"""Logins of a browser by OAuth; a leaderboard's scores with their times come with the schema files."""

from runner.store.migrations.script import execute

revision = "0018_web_login"
down_revision = "0017_dataset"


def upgrade() -> None:
    """Apply this version."""
    execute("0018_web_login.sql")
