"""A large history: the ranking of a leaderboard at a million results."""

from __future__ import annotations

from typing import Final

import psycopg

from runner.store import Store
from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies, timed_ms
from tests.benchmarks.queue.server import OWN, Server

#: Six results for each ranked submission: three of the public job, three of the secret one.
RUNS_OF_A_SUBMISSION: Final = 6
SUBMISSIONS: Final = 1_000_000 // RUNS_OF_A_SUBMISSION
BOARDS: Final = 10
USERS: Final = 2000
#: Users of one leaderboard.
AUTHORS: Final = 200
MONTHS: Final = 12

_BOARDS: Final = """\
INSERT INTO leaderboard.user_info (id, user_name) SELECT 'user ' || u, 'U' FROM generate_series(0, {users} - 1) u
ON CONFLICT DO NOTHING;
INSERT INTO leaderboard.code_files (code) VALUES ('pass') ON CONFLICT DO NOTHING;
INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, description)
SELECT 'board ' || n, now() + interval '1 day', '{{}}', 0, '' FROM generate_series(1, {boards}) n;
"""
#: A board's submissions, finished months ago at regular intervals. The report is random hexadecimal digits, which
#: compress to half.
_SUBMISSIONS: Final = """\
INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done)
SELECT l.id, 'x.py', 'user ' || n % {authors}, (SELECT min(id) FROM leaderboard.code_files),
       now() - n % {months} * interval '30 days', true
FROM generate_series(1, {each}) n JOIN leaderboard.leaderboard l ON l.name = '{board}';
"""
_JOBS: Final = """\
WITH job AS (
    INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, state, verdict, finished_at, report)
    SELECT s.id, s.user_id, 'CPU', 'leaderboard', x, 'done', 'accepted', now(), '{{"slot": "cpu0"}}'
    FROM leaderboard.submission s JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id AND l.name = '{board}'
    CROSS JOIN unnest(ARRAY[false, true]) x RETURNING id, submission_id, secret
), run AS (
    INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, system_info)
    SELECT j.submission_id, now(), now(), m, j.secret, 'CPU',
           CASE WHEN m = 'leaderboard' AND NOT j.secret THEN j.id / 1e6 END, true, '{{}}'
    FROM job j, unnest(ARRAY['test', 'benchmark', 'leaderboard']) m RETURNING id, submission_id, secret
)
INSERT INTO runner.job_run (run_id, job_id)
SELECT r.id, j.id FROM run r JOIN job j ON j.submission_id = r.submission_id AND j.secret = r.secret;
"""


def measure(server: Server) -> list[Figure]:
    """The ranking of one of ten leaderboards."""
    url = server.database("ranking")
    ours.install(url)
    _load(url)
    server.checkpoint()
    store = Store(url, application_name=OWN)
    try:
        if len(store.ranking("board 3")) != AUTHORS:
            raise RuntimeError("the ranking does not have every author")
        looks = timed_ms(lambda: store.ranking("board 3"), 200)
    finally:
        store.close()
    runs = int(server.value("SELECT count(*) FROM leaderboard.runs", url))
    return latencies(f"ranking of {AUTHORS} users among {runs} results", looks, p99_ms=20)


def _load(url: str) -> None:
    """Fill the leaderboards with finished ranked submissions."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(_BOARDS.format(users=USERS, boards=BOARDS).encode())
        for number in range(1, BOARDS + 1):
            words = {"board": f"board {number}", "each": SUBMISSIONS // BOARDS, "authors": AUTHORS, "months": MONTHS}
            connection.execute(_SUBMISSIONS.format(**words).encode())
            connection.execute(_JOBS.format(**words).encode())
        connection.execute(
            "UPDATE runner.score_mark SET run_id = 0, next_id = (SELECT max(id) FROM leaderboard.runs),"
            " noted_at = '-infinity'"
        )
        while (connection.execute("SELECT runner.keep_scores(100000) AS more").fetchone() or (False,))[0]:
            pass
        connection.execute("VACUUM ANALYZE")
