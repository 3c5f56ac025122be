"""Finals and sweeps of validations, as the commands of `leaderboard` order them."""

from __future__ import annotations

from runner.extras.queries import SHARED
from runner.store import Store
from runner.store.connection import Row


def final(
    store: Store, leaderboard: str, gpu_type: str | None, *, top: int = 10, rounds: int = 25, open_board: bool
) -> Row:
    """Order a final; its number, its finalists and its hosts."""
    values = {"gpu_type": gpu_type, "top": top, "rounds": rounds, "open": open_board}
    return store.all(SHARED["final"], leaderboard=leaderboard, **values)[0]


def cancel_final(store: Store, leaderboard: str, gpu_type: str | None) -> int:
    """Cancel the final that runs; how many jobs that concerned."""
    return int(store.all(SHARED["cancel_final"], leaderboard=leaderboard, gpu_type=gpu_type)[0]["jobs"])


def final_progress(store: Store, leaderboard: str) -> Row:
    """How far the newest final is."""
    return store.all(SHARED["final_progress"], leaderboard=leaderboard, gpu_type=None)[0]


def validate(
    store: Store, leaderboard: str, gpu_type: str, *, all_users: bool = False, only_missing: bool = False
) -> Row:
    """Order a sweep of validations; its number, its version and its jobs."""
    which = {"gpu_type": gpu_type, "all_users": all_users, "only_missing": only_missing}
    return store.all(SHARED["validate"], leaderboard=leaderboard, **which)[0]


def cancel_validations(store: Store, sweep_id: int) -> int:
    """Cancel what is left of a sweep; how many jobs that were."""
    return int(store.all(SHARED["cancel_validations"], sweep_id=sweep_id)[0]["asked"])


def validation_progress(store: Store, sweep_id: int) -> Row:
    """How far a sweep is."""
    return store.all(SHARED["validation_progress"], sweep_id=sweep_id)[0]
