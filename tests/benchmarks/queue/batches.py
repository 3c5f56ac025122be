"""What batches cost: a million items wait, and more are submitted, claimed, committed and read.

Each call is timed from its client, commit included, one after the other, with nothing else running.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from runner.base.model import Job, JobResult, Verdict
from runner.store import Store
from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies
from tests.benchmarks.queue.server import OWN, Server

ITEMS: Final = 1_000_000
AT_ONCE: Final = 1000
#: Lengths of the texts of a reference and of a candidate, in characters; eight candidates have one reference.
REFERENCE: Final = 1500
CANDIDATE: Final = 3000
SUBMITTED: Final = 50_000
CLAIMS: Final = 1000
PAGES: Final = 200
SUBMIT: Final = b"SELECT * FROM runner.submit_batch(%s::jsonb, 'CPU', batch => %s)"
PAGE: Final = b"SELECT * FROM runner.batch_results('full', after => %s, at_most => 1000)"


def measure(server: Server) -> list[Figure]:
    """Submit, claim, commit, page."""
    url = server.database("batches")
    ours.install(url)
    store = Store(url, application_name=OWN)
    with psycopg.Connection[dict[str, Any]].connect(url, autocommit=True, row_factory=dict_row) as connection:
        try:
            connection.execute(
                "INSERT INTO runner.gpu_type (name, vendor) VALUES ('CPU', 'none') ON CONFLICT DO NOTHING"
            )
            connection.execute("SET synchronous_commit = off")
            _submit(connection, "full", 0, ITEMS, CANDIDATE // 10)
            connection.execute("SET synchronous_commit = on")
            connection.execute("ANALYZE")
            server.checkpoint()
            taken_s = _submit(connection, "full", ITEMS, SUBMITTED, CANDIDATE)
            rate = Figure(
                name=f"submit with {ITEMS} items queued",
                unit="items/s",
                ours=SUBMITTED / taken_s,
                target=5000.0,
                higher_is_better=True,
            )
            claimed, claims = _claims(store)
            return [
                rate,
                *latencies(f"claim a group with {ITEMS} items queued", claims, p99_ms=10.0),
                *latencies("commit a group", _commits(store, claimed)),
                *_pages(connection),
            ]
        finally:
            store.close()


def _submit(connection: psycopg.Connection[dict[str, Any]], batch: str, first: int, number: int, length: int) -> float:
    """Submit so many items by one client; how many seconds its calls took."""
    taken_s = 0.0
    for start in range(first, first + number, AT_ONCE):
        items = json.dumps(
            [
                {
                    "key": f"key {n}",
                    "reference": f"class Model: pass  # {n // 8} ".ljust(REFERENCE, "x"),
                    "candidate": f"class ModelNew: pass  # {n} ".ljust(length, "x"),
                }
                for n in range(start, start + AT_ONCE)
            ]
        )
        begun_s = time.perf_counter()
        connection.execute(SUBMIT, (items, batch)).fetchall()
        taken_s += time.perf_counter() - begun_s
    return taken_s


def _claims(store: Store) -> tuple[Sequence[Job], Sequence[float]]:
    jobs: list[Job] = []
    taken: list[float] = []
    for _ in range(CLAIMS):
        begun_s = time.perf_counter()
        jobs += store.claim(host="probe", slots={"CPU": 1}, lease_s=3600).jobs
        taken.append((time.perf_counter() - begun_s) * 1000.0)
    return jobs, taken


def _commits(store: Store, jobs: Sequence[Job]) -> Sequence[float]:
    taken: list[float] = []
    for job in jobs:
        items = tuple({"id": one["id"], "verdict": "accepted", "message": ""} for one in job.task["candidates"])
        result = JobResult(verdict=Verdict.ACCEPTED, runs=(), error=None, report={}, build_ns=0, eval_ns=0, items=items)
        begun_s = time.perf_counter()
        store.complete(job, result)
        taken.append((time.perf_counter() - begun_s) * 1000.0)
    return taken


def _pages(connection: psycopg.Connection[dict[str, Any]]) -> Sequence[Figure]:
    """Pages at the beginning and at the end of the results."""
    figures: list[Figure] = []
    for what, after in (("first", 0), ("last", 8 * CLAIMS - 1000)):
        taken: list[float] = []
        for _ in range(PAGES):
            begun_s = time.perf_counter()
            connection.execute(PAGE, (after,)).fetchall()
            taken.append((time.perf_counter() - begun_s) * 1000.0)
        figures += latencies(f"{what} page of 1000 results", taken)
    return figures
