"""Submissions can be stopped for all frontends at once; the gateway's functions come with the schema files."""

from runner.store.migrations.script import execute

revision = "0016_gateway"
down_revision = "0015_scale"


def upgrade() -> None:
    """Apply this version."""
    execute("0016_gateway.sql")
