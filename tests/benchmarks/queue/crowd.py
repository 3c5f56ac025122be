"""A thousand hosts on one PostgreSQL: what they cost at rest, how many of them move for one job, how soon it runs.

The hosts are real daemons, each with its own two connections, many in a process: what a thousand machines' processors
would share, this machine's few must do, so the figures are upper bounds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Final

import psycopg

from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies
from tests.benchmarks.queue.server import Server
from tests.benchmarks.queue.worker import Worker, cpu_s

HOSTS: Final = 1000
PROCESSES: Final = 4
WATCH_S: Final = 60.0
COUNTED: Final = 20
SAMPLES: Final = 300


def measure(server: Server) -> list[Figure]:
    """Start the crowd, watch it rest, give it work."""
    url = server.database("crowd")
    ours.install(url)
    each = HOSTS // PROCESSES
    workers = [
        Worker(ours.__name__, url=url, hosts=each, types=["CPU"], name=f"crowd{number}", slots=1)
        for number in range(PROCESSES)
    ]
    try:
        for worker in workers:
            worker.wait_ready()
        time.sleep(20)
        before_s = {worker.pid: cpu_s(worker.pid) for worker in workers}
        with server.statements() as resting:
            connections = server.connections(url)
            time.sleep(WATCH_S)
        python_share = sum(cpu_s(worker.pid) - before_s[worker.pid] for worker in workers) / resting.seconds
        print(f"  resting: the daemons' processes use {python_share:.2f} cores; {_claims(resting.texts(url))} claims")
        with server.statements() as moving:
            _submit(url, COUNTED, pause=(2.5, 3.5))
        extra = _claims(moving.texts(url)) - _claims(resting.texts(url)) * moving.seconds / resting.seconds
        asked_ns = _submit(url, SAMPLES, pause=(0.2, 0.6))
        time.sleep(5)
        notes = [note for worker in workers for note in worker.stop()]
    finally:
        for worker in workers:
            worker.__exit__()
    waited_ms = [(note.at_ns - asked_ns[note.key]) / 1e6 for note in notes if note.key in asked_ns]
    if len(waited_ms) != SAMPLES:
        raise RuntimeError(f"{SAMPLES} jobs added, {len(waited_ms)} begun")
    return [
        Figure(name=f"{HOSTS} hosts at rest, statements per host", unit="1/s",
               ours=resting.to(url) / resting.seconds / HOSTS, target=0.6),
        Figure(name=f"{HOSTS} hosts at rest, connections per host", unit="", ours=connections / HOSTS, target=2),
        Figure(name=f"{HOSTS} hosts, claims sent for one job", unit="", ours=extra / COUNTED),
        *latencies(f"pickup by {HOSTS} idle hosts", waited_ms, p99_ms=100),
    ]  # fmt: skip


def _claims(texts: Mapping[str, int]) -> int:
    return sum(number for text, number in texts.items() if text.startswith("daemon claim"))


def _submit(url: str, jobs: int, *, pause: tuple[float, float]) -> dict[int, int]:
    spread = random.Random(jobs)  # noqa: S311 - spreads the submissions over the hosts' own rhythm
    asked_ns = {}
    with psycopg.connect(url) as connection:
        for _ in range(jobs):
            number = ours.submit(connection)
            asked_ns[number] = time.monotonic_ns()
            connection.commit()
            time.sleep(spread.uniform(*pause))
    return asked_ns
