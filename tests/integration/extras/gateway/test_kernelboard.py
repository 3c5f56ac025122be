"""kernelboard's role: all that its pages, its login and its ranking worker ask the database, and nothing secret.

The statements are ours; the tables, columns and clauses are kernelboard's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.integration.extras.gateway.conftest import Gate, board_login

Connection = psycopg.Connection[dict[str, Any]]

SUMMARIES = """
WITH best AS (
    SELECT s.leaderboard_id, r.runner, u.user_name, min(r.score) AS score
    FROM leaderboard.runs r
    JOIN leaderboard.submission s ON s.id = r.submission_id
    LEFT JOIN leaderboard.user_info u ON u.id = s.user_id
    WHERE NOT r.secret AND r.score IS NOT NULL AND r.passed AND coalesce(s.status, 'active') <> 'hacked'
    GROUP BY s.leaderboard_id, r.runner, u.id, u.user_name
)
SELECT l.id, l.name, l.deadline,
       (SELECT jsonb_agg(g.gpu_type) FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id) AS gpu_types,
       (SELECT jsonb_agg(b.user_name ORDER BY b.score) FROM best b WHERE b.leaderboard_id = l.id) AS users
FROM leaderboard.leaderboard l ORDER BY l.id DESC
"""
BOARD = """
SELECT l.name, l.deadline, l.task ->> 'lang' AS lang, l.description, l.task -> 'files' ->> 'reference.py' AS reference,
       l.task -> 'benchmarks' AS benchmarks, l.visibility
FROM leaderboard.leaderboard l WHERE l.id = 1
"""
CODES = """
SELECT s.id, c.id AS code_id, c.code FROM leaderboard.submission s JOIN leaderboard.code_files c ON c.id = s.code_id
WHERE s.leaderboard_id = 1 AND s.id = ANY (ARRAY[1])
"""
#: Its list of submissions, column by column.
LISTED = """
SELECT s.id, s.leaderboard_id, s.file_name, s.submission_time, s.done, s.status AS mark, t.status, t.error,
       t.last_heartbeat, t.created_at, (SELECT jsonb_agg(jsonb_build_object(
                   'mode', r.mode, 'passed', r.passed, 'score', r.score, 'start_time', r.start_time,
                   'end_time', r.end_time, 'meta', coalesce(r.meta, '{}'), 'result', coalesce(r.result, '{}'),
                   'compilation', coalesce(r.compilation, '{}')) ORDER BY r.start_time)
        FROM leaderboard.runs r WHERE r.submission_id = s.id AND NOT r.secret) AS runs
FROM leaderboard.submission s LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
WHERE s.id = %s AND s.user_id = 'ada'
"""
VALIDATED = """
SELECT s.id, v.fully_validated FROM leaderboard.submission s
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
JOIN leaderboard.runs r ON r.submission_id = s.id AND NOT r.secret AND r.score IS NOT NULL
LEFT JOIN LATERAL (
    SELECT v.fully_validated FROM leaderboard.submission_validation v
    WHERE v.submission_id = s.id AND v.gpu_type = r.runner
      AND v.contract_version = l.task -> 'validation' ->> 'version'
    ORDER BY v.checked_at DESC LIMIT 1
) v ON true
"""
LOGIN = """
INSERT INTO leaderboard.user_info (id, user_name, web_auth_id) VALUES (%s, %s, %s)
ON CONFLICT (id) DO UPDATE SET web_auth_id = EXCLUDED.web_auth_id WHERE leaderboard.user_info.web_auth_id IS NULL
RETURNING id, user_name, web_auth_id
"""


@pytest.fixture
def board(gate: Gate) -> Iterator[Connection]:
    """A connection of kernelboard's login."""
    with psycopg.connect(board_login(gate.owner_url), autocommit=True, row_factory=dict_row) as connection:
        yield connection


def test_its_pages_read_what_they_need(gate: Gate, board: Connection) -> None:
    """Summaries, a board, its submissions with their runs, code, and what KernelBot's validation has said."""
    gate.rank()
    assert [(row["gpu_types"], row["users"]) for row in board.execute(SUMMARIES)] == [(["CPU"], ["Ada"])]
    (page,) = board.execute(BOARD).fetchall()
    assert (page["name"], page["lang"], page["visibility"]) == ("identity", "py", "public")
    (code,) = board.execute(CODES).fetchall()
    assert b"custom_kernel" in code["code"]
    (own,) = board.execute(LISTED, (code["id"],)).fetchall()
    assert (own["done"], own["status"]) == (True, "succeeded")
    assert "leaderboard" in {run["mode"] for run in own["runs"]}
    assert board.execute(VALIDATED).fetchall() == [{"id": own["id"], "fully_validated": None}]
    gate.sql('UPDATE leaderboard.leaderboard SET task = task || \'{"validation": {"version": "v2"}}\'')
    gate.sql(
        "INSERT INTO leaderboard.submission_validation (submission_id, gpu_type, contract_version, status,"
        " fully_validated) SELECT s.id, 'CPU', v, 'completed', v = 'v2'"
        " FROM leaderboard.submission s, unnest(ARRAY['v1', 'v2']) v"
    )
    assert [row["fully_validated"] for row in board.execute(VALIDATED)] == [True]
    assert board.execute("SELECT lang, code FROM leaderboard.templates").fetchall()


def test_its_login_is_taken_by_the_gateway(gate: Gate, board: Connection) -> None:
    """A new user and one who is there get an id for the web; who has one keeps it."""
    assert board.execute(LOGIN, ("4711", "Web", "web-of-4711")).fetchall()[0]["web_auth_id"] == "web-of-4711"
    assert board.execute(LOGIN, ("bob", "Other", "web-of-bob")).fetchall()[0]["user_name"] == "Bob"
    assert board.execute(LOGIN, ("bob", "Other", "another")).fetchall() == []
    for web in ("web-of-4711", "web-of-bob"):
        assert gate.submit(cli=None, web=web).status == 202
    assert gate.submit(cli=None, web="another").status == 401


def test_its_ranking_worker_needs_one_right_more(gate: Gate, board: Connection) -> None:
    """The table that it makes for itself; docs/gateway.md says how to grant that."""
    make = "CREATE TABLE IF NOT EXISTS leaderboard.ranking_snapshot (leaderboard_id integer PRIMARY KEY, rank integer)"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        board.execute(make)
    gate.sql("GRANT CREATE ON SCHEMA leaderboard TO runner_test_board")
    board.execute(make)
    board.execute("INSERT INTO leaderboard.ranking_snapshot VALUES (1, 1) ON CONFLICT (leaderboard_id) DO NOTHING")
    assert len(board.execute("SELECT * FROM leaderboard.ranking_snapshot").fetchall()) == 1
