"""Hosts and GPU types remember the database login that wrote them."""

from runner.store.migrations.script import execute

revision = "0013_logins"
down_revision = "0012_demands"


def upgrade() -> None:
    """Apply this version."""
    execute("0013_logins.sql")
