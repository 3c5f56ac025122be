"""What heartbeats write: a thousand hosts hold eight running jobs each and renew their leases every five seconds.

Measured is the WAL of a minute, from pg_current_wal_lsn, full-page images included. Beside it the same minute as a
lease in each job's row would write it: the row and its indexes, and the row that KernelBot's readers look at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import psycopg

from runner.config import Config
from runner.store import Store
from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure
from tests.benchmarks.queue.server import OWN, Server

HOSTS: Final = 1000
SLOTS: Final = 8
MINUTE_S: Final = 60.0
_EACH_JOB: Final = (
    "UPDATE runner.job SET lease_expires_at = now() + interval '25 seconds' WHERE id = ANY (%(ids)s)",
    (
        "UPDATE leaderboard.submission_job_status t SET status = 'running', last_heartbeat = now()"
        " FROM runner.job j WHERE j.id = ANY (%(ids)s) AND t.submission_id = j.submission_id"
    ),
)


def measure(server: Server) -> list[Figure]:
    """WAL of a minute of heartbeats, ours and with a lease in each job's row."""
    url = server.database("beats")
    ours.install(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for number in range(HOSTS * SLOTS):
            ours.submit(connection, user=f"user {number % 500}", gpu_type="CPU", priority=0)
    store = Store(url, application_name=OWN)
    try:
        held = {}
        for number in range(HOSTS):
            claims = store.claim(host=f"host-{number}", slots={"CPU": SLOTS}, lease_s=3600)
            held[f"host-{number}"] = [job.key for job in claims.jobs]

        def beat(host: str) -> None:
            store.heartbeat(host=host, lease_s=3600, held=held[host])

        figures = [_figure(f"heartbeats of {HOSTS * SLOTS} running jobs, WAL", _wal(server, url, held, beat))]
    finally:
        store.close()
    with psycopg.connect(url, autocommit=True) as connection:

        def each_job(host: str) -> None:
            with connection.transaction():
                for statement in _EACH_JOB:
                    connection.execute(statement.encode(), {"ids": [job_id for job_id, _ in held[host]]})

        before = _wal(server, url, held, each_job)
    figures.append(_figure("the same with a lease in each job's row, WAL", before))
    figures.append(
        Figure(name="the first over the second, times", unit="1", ours=figures[0].ours / figures[1].ours, target=0.1)
    )
    return figures


def _figure(name: str, size: float) -> Figure:
    return Figure(name=name, unit="MB/min", ours=size / 1e6)


def _wal(server: Server, url: str, held: dict[str, list[tuple[int, int]]], beat: Callable[[str], None]) -> float:
    """Bytes that a minute of beats writes, after one round that is not counted."""
    for host in held:
        beat(host)
    with psycopg.connect(url, autocommit=True) as connection:
        # So that no vacuum of what went before falls into the minute.
        connection.execute("VACUUM")
        server.checkpoint()
        lsn = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
        before = (connection.execute(lsn).fetchone() or (0,))[0]
        heartbeat_s = Config().heartbeat_s
        for _ in range(round(MINUTE_S / heartbeat_s)):
            began_s = time.monotonic()
            for host in held:
                beat(host)
            time.sleep(max(0.0, heartbeat_s - (time.monotonic() - began_s)))
        return float((connection.execute(lsn).fetchone() or (0,))[0] - before)
