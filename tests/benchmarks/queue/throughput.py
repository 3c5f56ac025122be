"""How many jobs that do nothing a queue claims and completes in a second, all queued beforehand.

Everybody gets the same number of worker processes, and may have the same number of jobs in hand. Ours writes what a
real evaluation leaves: a row of results per run with its link to the job, the job's report, the submission's status,
the score. The peers write their own job's end and nothing else. pgqueuer can also be told to take jobs without limit;
that is no mode of ours, where a job in hand occupies a GPU, so it is shown for the record.

The clock runs from the moment when every worker has begun until the last job is over in the database.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from tests.benchmarks.queue import ours
from tests.benchmarks.queue.contenders import Contender, contender, peers
from tests.benchmarks.queue.figures import Figure
from tests.benchmarks.queue.server import OWN, Server
from tests.benchmarks.queue.worker import Note, Worker

PROCESSES: Final = 2
SLOTS: Final = 8
ROUNDS: Final = 3
#: Settings of pgqueuer that keep to SLOTS jobs in hand; it wants at least two batches in hand.
LIMITED: Final = ({"batch": 4, "at_most": SLOTS}, {"batch": 2, "at_most": SLOTS})
UNLIMITED: Final = ({"batch": 10}, {"batch": 50})
#: So many that a run takes some seconds.
JOBS: Final = {"ours": 6000, "procrastinate": 3000, "pgqueuer": 10_000, "pgqueuer without limit": 40_000}

Preload = Callable[[psycopg.Connection[Any], int], None]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one drained queue told."""

    jobs_per_s: float
    wal_bytes_per_job: float


def measure(server: Server) -> list[Figure]:
    """Jobs per second, and what a job costs."""
    there = peers()
    runs: dict[str, list[Run]] = {}
    lines: list[tuple[str, Contender, Preload]] = [
        ("ours", contender("ours", slots=SLOTS), ours.preload),
        ("ours, ranked", contender("ours", slots=SLOTS), ours.preload_ranked),
    ]
    if "procrastinate" in there:
        side = contender("procrastinate", slots=SLOTS)
        lines.append(("procrastinate", side, side.side.preload))
    if "pgqueuer" in there:
        for name, choices in (("pgqueuer", LIMITED), ("pgqueuer without limit", UNLIMITED)):
            for options in choices:
                side = contender("pgqueuer", **options)
                lines.append((f"{name} {_settings(options)}", side, side.side.preload))
    for number in range(ROUNDS):
        for name, side, preload in lines:
            jobs = next(count for key, count in reversed(JOBS.items()) if name.startswith(key))
            found = drain(server, side, preload, jobs)
            runs.setdefault(name, []).append(found)
            print(f"  round {number + 1}, {name}: {found.jobs_per_s:.0f} jobs/s", flush=True)
    rate = {name: statistics.median(run.jobs_per_s for run in found) for name, found in runs.items()}
    best = {
        "procrastinate": rate.get("procrastinate"),
        "pgqueuer": max((rate[name] for name in rate if name.startswith("pgqueuer (")), default=None),
    }
    peer_rates = {name: value for name, value in best.items() if value is not None}
    fastest = max(peer_rates.values(), default=None)
    unlimited = max((rate[name] for name in rate if name.startswith("pgqueuer without")), default=None)
    unlimited_rates = {} if unlimited is None else {"pgqueuer": unlimited}
    figures = [
        Figure(
            name=f"throughput, {PROCESSES} workers, {SLOTS} jobs in hand each, mode test (one row of results)",
            unit="jobs/s", ours=rate["ours"], peers=peer_rates, target=fastest, higher_is_better=True,
        ),
        Figure(
            name="the same, ranked (three rows of results, score, secret job)",
            unit="jobs/s", ours=rate["ours, ranked"], peers=peer_rates, higher_is_better=True,
        ),
        Figure(
            name="the same, the peer without limit of jobs in hand",
            unit="jobs/s", ours=rate["ours"], peers=unlimited_rates, higher_is_better=True,
        ),
    ]  # fmt: skip
    if fastest is not None:
        figures.insert(
            1,
            Figure(
                name="the same, over the faster of the peers", unit="times", ours=rate["ours"] / fastest, target=1.0,
                higher_is_better=True,
            ),
        )  # fmt: skip
    limited = {name: next((key for key in rate if key.startswith(name)), None) for name in peer_rates}
    wal = {
        name: statistics.median(run.wal_bytes_per_job for run in runs[key])
        for name, key in {"ours": "ours", **limited}.items()
        if key is not None
    }
    sent = {"ours": statements_per_job(server, contender("ours", slots=SLOTS), ours.preload)}
    for name in peer_rates:
        side = contender(name, **({"slots": SLOTS} if name == "procrastinate" else LIMITED[0]))
        sent[name] = statements_per_job(server, side, side.side.preload)
    figures += [
        Figure(name="WAL per job", unit="bytes", ours=wal.pop("ours"), peers=wal),
        Figure(name="statements per job", unit="", ours=sent.pop("ours"), peers=sent),
    ]
    return figures


def drain(server: Server, side: Contender, preload: Preload, jobs: int) -> Run:
    """Queue jobs, start workers, wait until nothing is open."""
    url = _prepare(server, side, preload, jobs)
    wal_before = server.wal_bytes()
    notes, ended_ns = _work(side, url)
    wal_bytes = server.wal_bytes() - wal_before
    every = [note for of_worker in notes for note in of_worker]
    begun = Counter(note.key for note in every)
    if len(every) < jobs:
        raise RuntimeError(f"{side.name}: {jobs} jobs queued, {len(every)} begun ({len(begun)} different)")
    together_ns = max(of_worker[0].at_ns for of_worker in notes)
    done = sum(note.at_ns >= together_ns for note in every)
    return Run(jobs_per_s=done / (ended_ns - together_ns) * 1e9, wal_bytes_per_job=wal_bytes / jobs)


def statements_per_job(server: Server, side: Contender, preload: Preload, jobs: int = 1000) -> float:
    """How many statements the workers send per job, start and end of the workers included."""
    url = _prepare(server, side, preload, jobs)
    with server.statements() as seen:
        _work(side, url)
    return seen.to(url) / jobs


def _prepare(server: Server, side: Contender, preload: Preload, jobs: int) -> str:
    url = server.database(side.name)
    side.side.install(url)
    with psycopg.connect(url) as connection:
        preload(connection, jobs)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    server.checkpoint()
    return url


def _work(side: Contender, url: str) -> tuple[list[list[Note]], int]:
    workers = [Worker(side.module, url=url, name=f"worker{n}", **side.options) for n in range(PROCESSES)]
    try:
        for worker in workers:
            worker.wait_ready()
        with psycopg.connect(url, autocommit=True, application_name=OWN) as connection:
            while _open(connection, side.side.OPEN_SQL):
                time.sleep(0.02)
        ended_ns = time.monotonic_ns()
        return [notes for notes in (worker.stop() for worker in workers) if notes], ended_ns
    finally:
        for worker in workers:
            worker.__exit__()


def _open(connection: psycopg.Connection[Any], query: str) -> bool:
    found = connection.execute(query.encode()).fetchone()
    return bool(found and found[0])


def _settings(options: Mapping[str, object]) -> str:
    return f"({', '.join(f'{name} {value}' for name, value in options.items())})"
