"""How many jobs that do nothing a queue claims and completes in a second, all queued beforehand.

Everybody gets the same number of worker processes, and may have the same number of jobs in hand. Ours writes what a
real evaluation leaves: a row of results with its link to the job, the job's report, the submission's status. The peers
write their own job's end and nothing else.

The clock runs from the moment when every worker has begun until the last job is over in the database.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from tests.benchmarks.queue.contenders import Contender, contender, peers
from tests.benchmarks.queue.figures import Figure
from tests.benchmarks.queue.server import OWN, Server
from tests.benchmarks.queue.worker import Note, Worker

PROCESSES: Final = 2
SLOTS: Final = 8
ROUNDS: Final = 3
#: Settings of pgqueuer that keep to SLOTS jobs in hand; it wants at least two batches in hand.
LIMITED: Final = ({"batch": 4, "at_most": SLOTS}, {"batch": 2, "at_most": SLOTS})
#: So many that a run takes some seconds.
JOBS: Final = {"ours": 6000, "procrastinate": 3000, "pgqueuer": 10_000}


def measure(server: Server) -> list[Figure]:
    """Jobs per second."""
    there = peers()
    rates: dict[str, list[float]] = {}
    lines: list[tuple[str, Contender]] = [("ours", contender("ours", slots=SLOTS))]
    if "procrastinate" in there:
        lines.append(("procrastinate", contender("procrastinate", slots=SLOTS)))
    if "pgqueuer" in there:
        lines += [(f"pgqueuer {_settings(options)}", contender("pgqueuer", **options)) for options in LIMITED]
    for number in range(ROUNDS):
        for name, side in lines:
            measured = drain(server, side, JOBS[side.name])
            rates.setdefault(name, []).append(measured)
            print(f"  round {number + 1}, {name}: {measured:.0f} jobs/s", flush=True)
    rate = {name: statistics.median(measured) for name, measured in rates.items()}
    peer_rates = {peer: max(rate[name] for name in rate if name.startswith(peer)) for peer in there}
    return [
        Figure(
            name=f"throughput, {PROCESSES} workers, {SLOTS} jobs in hand each, mode test (one row of results)",
            unit="jobs/s", ours=rate["ours"], peers=peer_rates, target=max(peer_rates.values(), default=None),
            higher_is_better=True,
        ),
    ]  # fmt: skip


def drain(server: Server, side: Contender, jobs: int) -> float:
    """Queue jobs, start workers, wait until nothing is open; jobs a second."""
    url = server.database(side.name)
    side.side.install(url)
    with psycopg.connect(url) as connection:
        side.side.preload(connection, jobs)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    server.checkpoint()
    notes, ended_ns = _work(side, url)
    every = [note for of_worker in notes for note in of_worker]
    if len(every) < jobs:
        different = len({note.key for note in every})
        raise RuntimeError(f"{side.name}: {jobs} jobs queued, {len(every)} begun ({different} different)")
    together_ns = max(of_worker[0].at_ns for of_worker in notes)
    done = sum(note.at_ns >= together_ns for note in every)
    return done / (ended_ns - together_ns) * 1e9


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
