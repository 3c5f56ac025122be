"""Finals, as `leaderboard final` orders them."""

from __future__ import annotations

from runner.extras.queries import SHARED
from runner.store import Store
from runner.store.connection import Row


def order(
    store: Store, leaderboard: str, gpu_type: str | None, *, top: int = 10, rounds: int = 25, open_board: bool
) -> Row:
    """Order one; its number, its finalists and its hosts."""
    values = {"gpu_type": gpu_type, "top": top, "rounds": rounds, "open": open_board}
    return store.all(SHARED["final"], leaderboard=leaderboard, **values)[0]


def cancel(store: Store, leaderboard: str, gpu_type: str | None) -> int:
    """Cancel the one that runs; how many jobs that concerned."""
    return int(store.all(SHARED["cancel_final"], leaderboard=leaderboard, gpu_type=gpu_type)[0]["jobs"])


def progress(store: Store, leaderboard: str) -> Row:
    """How far the newest is."""
    return store.all(SHARED["final_progress"], leaderboard=leaderboard, gpu_type=None)[0]
