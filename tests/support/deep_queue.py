"""Fills a queue with many waiting jobs, in a few statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

_FILL: Final = (
    """
INSERT INTO leaderboard.user_info (id, user_name) SELECT 'user ' || u, 'U' FROM generate_series(0, %(users)s - 1) u
""",
    """
INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done, mode_category)
SELECT l.id, 'x.py', 'user ' || n %% %(users)s, c.id, now(), false, 'test'
FROM generate_series(1, %(jobs)s) n, leaderboard.leaderboard l, leaderboard.code_files c
""",
    """
INSERT INTO leaderboard.submission_job_status (submission_id, status) SELECT id, 'pending' FROM leaderboard.submission
ON CONFLICT DO NOTHING
""",
    """
INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, priority, turn)
SELECT s.id, s.user_id, (%(gpu_types)s::text[])[1 + s.id %% cardinality(%(gpu_types)s::text[])], 'test', false,
       (s.id %% 20 = 0)::int, s.id / %(users)s
FROM leaderboard.submission s WHERE s.user_id LIKE 'user %%' ORDER BY s.id
""",
    """
INSERT INTO runner.share (user_id, gpu_type, priority, next_turn)
SELECT user_id, gpu_type, priority, max(turn) + 1 FROM runner.job GROUP BY 1, 2, 3 ON CONFLICT DO NOTHING
""",
    """
INSERT INTO runner.clock (gpu_type, priority, turn) SELECT DISTINCT gpu_type, priority, 0 FROM runner.job
ON CONFLICT DO NOTHING
""",
)


def fill(connection: psycopg.Connection[Any], *, jobs: int, users: int, gpu_types: Sequence[str]) -> None:
    """Let jobs of these GPU types wait, a twentieth of them of priority 1; one leaderboard and one code are there."""
    parameters = {"jobs": jobs, "users": users, "gpu_types": list(gpu_types)}
    for statement in _FILL:
        connection.execute(statement.encode(), parameters)
