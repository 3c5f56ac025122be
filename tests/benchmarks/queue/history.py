"""A large history: the ranking at a million results, a deletion beside claims, and what partitions by month would save.

The partitioned tables exist here only. Each stands beside a plain one with the same columns, indexes, foreign keys and
rows, so that every line of the table compares the two on one server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from runner.store import Store
from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies, timed_ms
from tests.benchmarks.queue.server import OWN, Server

#: Six results for each ranked submission: three of the public job, three of the secret one.
RUNS_OF_A_SUBMISSION: Final = 6
BOARDS: Final = 10
USERS: Final = 2000
#: Users of one leaderboard.
AUTHORS: Final = 200
MONTHS: Final = 12
ROWS: Final = 120_000
#: Rows that one call of runner.reap removes of a kind.
BATCH: Final = 500
LOOKUPS: Final = 300
DELETED: Final = 300

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


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A table that could be partitioned, with a payload of about so many bytes in each row."""

    name: str
    #: Its columns and constraints, without its primary key.
    columns: str
    key: str
    age: str
    #: An INSERT's SELECT list, from a number n.
    values: str
    indexes: tuple[str, ...]


_PAYLOAD: Final = "(SELECT string_agg(md5(random()::text || n || k), '') FROM generate_series(1, {parts}) k)"
#: Older rows first, as they are written in life.
_AT: Final = "now() - interval '10 minutes' - (({rows} - n) / {month}) * interval '30 days'"
KINDS: Final = (
    Kind(
        name="event",
        columns=(
            "id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, kind text NOT NULL, submission_id integer"
            " REFERENCES leaderboard.submission (id) ON DELETE CASCADE, job_id bigint REFERENCES runner.job (id)"
            " ON DELETE CASCADE, attempt integer, host text, detail jsonb NOT NULL"
        ),
        key="id",
        age="at",
        values=(
            f"(at, kind, submission_id, job_id, attempt, host, detail) SELECT {_AT}, 'failed', %(first)s + n %% %(of)s,"
            f" %(job)s + n %% %(of)s, 1, 'host-1', jsonb_build_object('error', {_PAYLOAD.format(parts=4)})"
        ),
        indexes=("submission_id, id", "job_id", "at"),
    ),
    Kind(
        name="superseded_run",
        columns=(
            "run_id integer NOT NULL, submission_id integer NOT NULL REFERENCES leaderboard.submission (id)"
            " ON DELETE CASCADE, job_id bigint REFERENCES runner.job (id) ON DELETE CASCADE, run jsonb NOT NULL,"
            " reason text NOT NULL, at timestamptz NOT NULL"
        ),
        key="run_id",
        age="at",
        values=(
            "(run_id, submission_id, job_id, run, reason, at) SELECT n, %(first)s + n %% %(of)s, %(job)s + n %% %(of)s,"
            f" jsonb_build_object('result', {_PAYLOAD.format(parts=50)}), 'replaced', {_AT}"
        ),
        indexes=("submission_id", "job_id", "at"),
    ),
    Kind(
        name="report",
        columns=(
            "job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE, at timestamptz NOT NULL,"
            " submission_id integer, report jsonb NOT NULL"
        ),
        key="job_id",
        age="at",
        values=(
            f"(job_id, at, submission_id, report) SELECT %(job)s + n, {_AT}, %(first)s + n %% %(of)s,"
            f" jsonb_build_object('output', {_PAYLOAD.format(parts=120)})"
        ),
        indexes=("at",),
    ),
)


def measure(server: Server) -> list[Figure]:
    """The ranking, a deletion, and each table with and without partitions."""
    return [*_ranking(server), *_deletion(server), *_partitions(server)]


# -- ranking and deletion --------------------------------------------------------------------------------------------


def _load(url: str, submissions: int, boards: dict[str, int]) -> None:
    """Fill leaderboards with finished ranked submissions; `boards` has those that are not of the average size."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(_BOARDS.format(users=USERS, boards=BOARDS).encode())
        names = [f"board {number}" for number in range(1, BOARDS + 1)]
        average = (submissions - sum(boards.values())) // (len(names) - len(boards))
        for name in names:
            words = {"board": name, "each": boards.get(name, average), "authors": AUTHORS, "months": MONTHS}
            connection.execute(_SUBMISSIONS.format(**words).encode())
            connection.execute(_JOBS.format(**words).encode())
        connection.execute(
            "UPDATE runner.score_mark SET run_id = 0, next_id = (SELECT max(id) FROM leaderboard.runs),"
            " noted_at = '-infinity'"
        )
        while (connection.execute("SELECT runner.keep_scores(100000) AS more").fetchone() or (False,))[0]:
            pass
        connection.execute("VACUUM ANALYZE")


def _ranking(server: Server) -> list[Figure]:
    url = server.database("ranking")
    ours.install(url)
    _load(url, 1_000_000 // RUNS_OF_A_SUBMISSION, {})
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


def _deletion(server: Server) -> list[Figure]:
    """A leaderboard of 2,000 submissions goes, beside a host that claims from another one all the time."""
    url = server.database("deletion")
    ours.install(url)
    _load(url, 200_000 // RUNS_OF_A_SUBMISSION, {"board 1": 2000})
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(3000):
            ours.submit(connection)
    server.checkpoint()
    store = Store(url, application_name=OWN)
    try:
        with _claiming(url) as before_ms:
            time.sleep(3.0)
        with _claiming(url) as beside_ms:
            began_s = time.monotonic()
            store.delete_board("board 1", force=True)
            took_s = time.monotonic() - began_s
    finally:
        store.close()
    return [
        Figure(name="deleting 2,000 submissions with their leaderboard, among 200,000 results", unit="s", ours=took_s,
               target=2),
        Figure(name="the longest claim before", unit="ms", ours=max(before_ms)),
        Figure(name="the longest claim beside it", unit="ms", ours=max(beside_ms)),
    ]  # fmt: skip


@contextmanager
def _claiming(url: str) -> Iterator[list[float]]:
    """A host that claims a job a hundred times a second; how long each claim took, ms."""
    stop = threading.Event()
    taken_ms: list[float] = []

    def claim() -> None:
        store = Store(url, application_name=OWN)
        try:
            while not stop.wait(0.01):
                began_s = time.perf_counter()
                store.claim(host="beside", slots={"CPU": 1}, lease_s=3600)
                taken_ms.append((time.perf_counter() - began_s) * 1e3)
        finally:
            store.close()

    thread = threading.Thread(target=claim)
    thread.start()
    try:
        yield taken_ms
    finally:
        stop.set()
        thread.join(60)


# -- partitions ------------------------------------------------------------------------------------------------------


def _partitions(server: Server) -> list[Figure]:
    url = server.database("partitions")
    ours.install(url)
    _load(url, ROWS // 2, {})
    figures: list[Figure] = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off; CREATE SCHEMA bench")
        first, job = connection.execute("SELECT min(submission_id), min(id) FROM runner.job").fetchone() or (0, 0)
        for kind in KINDS:
            found = {}
            for table, months in ((f"{kind.name}_plain", False), (f"{kind.name}_months", True)):
                _make(connection, kind, table, months=months)
                found[months] = _measure_table(server, connection, kind, table, {"first": first, "job": job})
            figures += [
                Figure(name=f"{kind.name}, {name}, {label}", unit=unit, ours=found[months][name, unit])
                for name, unit in found[False]
                for months, label in ((False, "one table"), (True, "by month"))
            ]
        figures += _locks(url, connection)
    return figures


def _make(connection: psycopg.Connection[Any], kind: Kind, table: str, *, months: bool) -> None:
    key = f"{kind.key}, {kind.age}" if months else kind.key
    by = f" PARTITION BY RANGE ({kind.age})" if months else ""
    connection.execute(f"CREATE TABLE bench.{table} ({kind.columns}, PRIMARY KEY ({key})){by}".encode())
    for index in kind.indexes:
        connection.execute(f"CREATE INDEX ON bench.{table} ({index})".encode())
    if months:
        for number in range(-1, MONTHS):
            connection.execute(_month(connection, table, number))
        connection.execute(f"CREATE TABLE bench.{table}_rest PARTITION OF bench.{table} DEFAULT".encode())


def _month(connection: psycopg.Connection[Any], table: str, number: int) -> bytes:
    """The statement that makes the partition of the thirty days that end so many times thirty days ago."""
    bounds = f"SELECT now()::date + 1 - {number + 1} * 30, now()::date + 1 - {number} * 30"
    start, end = connection.execute(bounds.encode()).fetchone() or ("", "")
    name = f"{table}_{number if number >= 0 else 'next'}"
    return f"CREATE TABLE bench.{name} PARTITION OF bench.{table} FOR VALUES FROM ('{start}') TO ('{end}')".encode()


def _measure_table(
    server: Server, connection: psycopg.Connection[Any], kind: Kind, table: str, ids: dict[str, int]
) -> dict[tuple[str, str], float]:
    values = kind.values.format(rows=ROWS, month=ROWS // MONTHS)
    insert = f"INSERT INTO bench.{table} {values} FROM generate_series(%(low)s::int, %(high)s::int) n".encode()
    words = {**ids, "of": ROWS // 2}
    connection.execute(insert, {**words, "low": 1, "high": ROWS - 2000})
    connection.execute(b"VACUUM ANALYZE")
    server.checkpoint()
    found: dict[tuple[str, str], float] = {}

    # One row a call, as the end of an attempt writes it.
    numbers = iter(range(ROWS - 1999, ROWS))

    def add() -> None:
        number = next(numbers)
        connection.execute(insert, {**words, "low": number, "high": number})

    wal = server.wal_bytes()
    found["a row is written", "ms"] = _middle(timed_ms(add, 1500))
    found["a row is written, WAL", "bytes"] = (server.wal_bytes() - wal) / 1501

    column = "job_id" if kind.name == "report" else "submission_id"
    start = ids["job"] if kind.name == "report" else ids["first"]
    look = f"SELECT * FROM bench.{table} WHERE {column} = %(of)s".encode()  # noqa: S608 - names of ours
    spread = iter(range(1, LOOKUPS + 2))

    def find() -> None:
        connection.execute(look, {"of": start + 150 * next(spread)}).fetchall()

    found[f"the rows of one {column.removesuffix('_id')} are read", "ms"] = _middle(timed_ms(find, LOOKUPS))

    # The month that is due, as runner.reap removes it, and as a partition goes.
    server.checkpoint()
    wal, began_s = server.wal_bytes(), time.monotonic()
    if table.endswith("_months"):
        connection.execute(f"DROP TABLE bench.{table}_{MONTHS - 1}".encode())
    else:
        due = (
            f"DELETE FROM bench.{table} t USING (SELECT x.{kind.key} FROM bench.{table} x"  # noqa: S608 - names of ours
            f" WHERE x.{kind.age} < now() - interval '325 days' ORDER BY x.{kind.age} LIMIT {BATCH}"
            f" FOR UPDATE SKIP LOCKED) AS old WHERE t.{kind.key} = old.{kind.key}"
        ).encode()
        while connection.execute(due).rowcount:
            pass
        connection.execute(f"VACUUM bench.{table}".encode())
    found["a month of 10,000 rows goes", "s"] = time.monotonic() - began_s
    found["a month of 10,000 rows goes, WAL", "MB"] = (server.wal_bytes() - wal) / 1e6
    return found


def _locks(url: str, connection: psycopg.Connection[Any]) -> list[Figure]:
    """What making a partition ahead and dropping one wait for, and who waits behind them: 1 or 0."""
    connection.execute("SET lock_timeout = '300ms'")

    def waits(statement: bytes, beside: bytes) -> float:
        with psycopg.connect(url) as other:
            other.execute(beside)
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(statement)
            except psycopg.errors.LockNotAvailable:
                return 1.0
        return 0.0

    ahead = (
        b"CREATE TABLE bench.event_months_far PARTITION OF bench.event_months"
        b" FOR VALUES FROM ('2100-01-01') TO ('2100-02-01')"
    )
    drop = b"DROP TABLE bench.event_months_10"
    writes = b"UPDATE runner.job SET priority = priority WHERE id = (SELECT max(id) FROM runner.job)"
    reads = b"SELECT count(*) FROM bench.event_months WHERE at > now() - interval '1 hour'"
    return [
        Figure(name="making a partition waits for an open write to runner.job", unit="1", ours=waits(ahead, writes)),
        Figure(name="making a partition waits for an open reader of the table", unit="1", ours=waits(ahead, reads)),
        Figure(name="dropping a partition waits for an open reader of the table", unit="1", ours=waits(drop, reads)),
        Figure(name="dropping a partition waits for an open write to runner.job", unit="1", ours=waits(drop, writes)),
    ]


def _middle(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]
