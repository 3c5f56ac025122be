"""The statements that several guests send: those of `queries.sql`, and calls of functions."""

from __future__ import annotations

from typing import Final

from runner.store.queries import statements

#: By name.
SHARED: Final = statements(
    __file__,
    "cancel_final(leaderboard text, gpu_type text) AS jobs",
    "cancel_validations(sweep_id bigint) AS asked",
    "delete_board(name text, force boolean) AS deleted",
    "final(leaderboard text, gpu_type text, top integer, rounds integer, open boolean)",
    "validate(leaderboard text, gpu_type text, all_users boolean, only_missing boolean)",
    "validation_progress(sweep_id bigint)",
)
