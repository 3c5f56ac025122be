"""Functions that were changed since 0024: their literals read the same whatever a backslash means in a session."""

from __future__ import annotations

revision = "0025_values"
down_revision = "0024_addresses"


def upgrade() -> None:
    """Apply this version: nothing but the files changes."""
