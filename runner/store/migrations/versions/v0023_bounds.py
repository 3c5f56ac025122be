"""Functions that were changed since 0022: bounds of results, names, open jobs and of what runner.reap may erase."""

from __future__ import annotations

revision = "0023_bounds"
down_revision = "0022_follow"


def upgrade() -> None:
    """Apply this version: nothing but the files changes."""
