"""Submissions can be stopped for all frontends at once; the gateway's functions come with the schema files."""

from runner.store.migrations.script import execute

revision = "0020_gateway"
down_revision = "0014_turns"


def upgrade() -> None:
    """Apply this version."""
    execute("0020_gateway.sql")
