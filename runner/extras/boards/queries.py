"""What the commands of leaderboards send beside `SHARED`."""

from __future__ import annotations

from typing import Final

from runner.store.queries import statements

#: By name.
QUERIES: Final = statements(
    __file__,
    "pause_board(leaderboard text, reason text) AS changed",
    "resume_board(leaderboard text) AS changed",
    "set_demand(name text, timing text, tolerance float8) AS changed",
    "set_open_code(name text, open_code boolean)",
)
