"""A claim does not wait for the disk: runner.claim was changed since 0023."""

from __future__ import annotations

revision = "0024_quick_claims"
down_revision = "0023_bounds"


def upgrade() -> None:
    """Apply this version: nothing but the files changes."""
