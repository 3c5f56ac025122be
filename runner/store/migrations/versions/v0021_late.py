"""Operators may submit for a user after the deadline; the function comes with the schema files."""

from __future__ import annotations

revision = "0021_late"
down_revision = "0020_trace"


def upgrade() -> None:
    """Apply this version: nothing but the files changes."""
