"""What a deep queue costs: a hundred thousand jobs wait, of many users and GPU types, and one more thing is asked.

Measured with nothing else running, each call from its client, commit included; then again after thousands of jobs have
gone through, with autovacuum off, so that their dead rows lie where the next claim looks.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psycopg

from runner import __version__
from runner.store import HostRecord, Store
from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies, timed_ms
from tests.benchmarks.queue.server import OWN, Server
from tests.benchmarks.queue.worker import Worker

JOBS: Final = 100_000
USERS: Final = 2000
LOADERS: Final = 4
CLAIMS: Final = 1000
CHURN: Final = 8000


def measure(server: Server) -> list[Figure]:
    """Claim, submit, status and list."""
    url = server.database("depth")
    ours.install(url)
    _set_autovacuum(url, on=False)
    load(url, JOBS)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    server.checkpoint()
    store = Store(url, application_name=OWN)
    try:
        figures = [
            *_claims(store, f"claim with {JOBS} queued"),
            *_asks(store, server, url),
        ]
        _churn(server, url, CHURN)
        figures += _claims(store, f"the same after {CHURN} jobs went through, no vacuum")
    finally:
        store.close()
    return figures


def load(url: str, jobs: int) -> None:
    """Queue jobs, from several connections; what is lost in a power cut is no matter here."""

    def some(number: int) -> None:
        choose = random.Random(number)  # noqa: S311 - any mixture will do
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            for _ in range(jobs // LOADERS):
                ours.submit(
                    connection,
                    user=f"user {choose.randrange(USERS)}",
                    gpu_type=choose.choice(ours.TYPES),
                    priority=int(choose.random() < 0.05),
                )

    with ThreadPoolExecutor(LOADERS) as pool:
        list(pool.map(some, range(LOADERS)))


def _claims(store: Store, name: str) -> list[Figure]:
    """One claim after the other, by a host of one GPU type and by one that serves all."""
    figures = []
    for label, types in (("one GPU type", ours.TYPES[:1]), (f"{len(ours.TYPES)} GPU types", ours.TYPES)):
        host = f"probe-{len(types)}"
        _register(store, host, types)
        slots = dict.fromkeys(types, 1)

        def claim(host: str = host, slots: dict[str, int] = slots) -> None:
            claims = store.claim(host=host, slots=slots, lease_s=3600, at_most=1)
            if len(claims.jobs) != 1:
                raise RuntimeError(f"one job of a full queue was to be claimed, not {claims}")

        figures += latencies(f"{name}, {label}", timed_ms(claim, CLAIMS), p99_ms=10)
    return figures


def _asks(store: Store, server: Server, url: str) -> list[Figure]:
    choose = random.Random(0)  # noqa: S311 - any submission will do
    last = int(server.value("SELECT max(submission_id) FROM runner.job WHERE state = 'queued'", url))
    return [
        *latencies(f"submit with {JOBS} queued", timed_ms(lambda: _submit(store, choose.randrange(USERS)), 500)),
        *latencies(
            f"status of one submission with {JOBS} queued",
            timed_ms(lambda: store.submission(choose.randint(1, last)), 200),
        ),
        *latencies(f"list of 20 with {JOBS} queued", timed_ms(lambda: store.queue(limit=20), 50)),
    ]


def _submit(store: Store, user: int) -> None:
    store.submit(
        leaderboard=ours.BOARD, user_id=f"user {user}", file_name="a.py", code=b"pass", mode="test",
        gpu_types=["CPU"], user_name=None,
    )  # fmt: skip


def _register(store: Store, host: str, types: tuple[str, ...]) -> None:
    slots = [{"name": f"slot {name}", "gpu_type": name, "devices": [], "cpus": [0]} for name in types]
    store.register_host(host=HostRecord(name=host, version=__version__, slots=slots, instance=host, gpu_types=types))


def _churn(server: Server, url: str, jobs: int) -> None:
    """Let a daemon work until so many jobs are over."""
    with Worker(ours.__name__, url=url, slots=8) as worker:
        worker.wait_ready()
        while _over(server, url) < jobs:
            time.sleep(1)
        worker.stop()


def _over(server: Server, url: str) -> int:
    return int(server.value("SELECT count(*) FROM runner.job WHERE state = 'done'", url))


def _set_autovacuum(url: str, *, on: bool) -> None:
    query = (
        "SELECT format('%I.%I', schemaname, relname) FROM pg_stat_user_tables"
        " WHERE schemaname IN ('runner', 'leaderboard')"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        tables: list[Any] = connection.execute(query).fetchall()
        for (name,) in tables:
            connection.execute(f"ALTER TABLE {name} SET (autovacuum_enabled = {on})".encode())
