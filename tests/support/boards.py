"""A leaderboard for tests that evaluate nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from runner.base.gpu_types import Registry
from runner.extras.boards.store import BoardStore


def publish(store: BoardStore, name: str, gpu_types: Sequence[str]) -> None:
    """Make a leaderboard that closes tomorrow and has no task, and all GPU types that a daemon knows."""
    types = Registry.load().all()
    store.sync_gpu_types([(entry.name, entry.vendor.value, entry.aliases, entry.description) for entry in types])
    deadline = datetime.now(UTC) + timedelta(days=1)
    store.create_board(
        name=name, deadline=deadline, task={"lang": "py"}, description="", gpus=gpu_types, templates={}, extra=None
    )
