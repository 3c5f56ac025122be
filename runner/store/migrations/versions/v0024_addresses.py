"""Views of the data export, changed since 0023: a name that holds an address of electronic mail is not shown."""

from __future__ import annotations

revision = "0024_addresses"
down_revision = "0023_bounds"


def upgrade() -> None:
    """Apply this version: nothing but the files changes."""
