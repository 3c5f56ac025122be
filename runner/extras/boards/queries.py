"""What the commands of leaderboards send beside `SHARED`."""

from __future__ import annotations

from typing import Final

from runner.store.queries import statements

#: By name.
QUERIES: Final = statements(
    __file__,
    (
        "invalidate(submission_id bigint, leaderboard text, host text, since timestamptz, until timestamptz, "
        "gpu_types text[], reason text, verdicts text[], cause text) AS jobs"
    ),
    "pause_board(leaderboard text, reason text) AS changed",
    (
        "rerun(submission_id bigint, leaderboard text, host text, since timestamptz, until timestamptz, gpu_types "
        "text[], reason text, priority integer, verdicts text[], cause text) AS jobs"
    ),
    "resume_board(leaderboard text) AS changed",
    "set_demand(name text, timing text, tolerance float8) AS changed",
    "set_open_code(name text, open_code boolean)",
)
