"""Jobs count unanswered claims and may expire; scores are kept in the order of the ranking."""

from runner.store.migrations.script import execute

revision = "0014_turns"
down_revision = "0013_logins"


def upgrade() -> None:
    """Apply this version."""
    execute("0014_turns.sql")
