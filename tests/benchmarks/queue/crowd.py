"""A thousand hosts on one PostgreSQL: what they cost at rest, how many of them move for one job, how soon it runs.

The hosts are real daemons with eight slots, each with its own connection, many in a process: what a thousand machines'
processors would share, this machine's few must do. So the pickup is an upper bound; whose processor time a job costs is
shown beside it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg

from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies
from tests.benchmarks.queue.server import Server
from tests.benchmarks.queue.worker import Worker, cpu_s

HOSTS: Final = 1000
PROCESSES: Final = 4
SLOTS: Final = 8
SETTLE_S: Final = 10.0
WATCH_S: Final = 30.0
#: Submissions during which statements are counted, and during which nothing else is done.
COUNTED: Final = 12
SAMPLES: Final = 150


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Processor time, seconds per second: of the server, of all daemons together."""

    server: float
    daemons: float


def measure(server: Server) -> list[Figure]:
    """Start the crowd, watch it rest, give it work."""
    url = server.database("crowd")
    ours.install(url)
    workers = [
        Worker(ours.__name__, url=url, hosts=HOSTS // PROCESSES, types=["CPU"], name=f"crowd{number}", slots=SLOTS)
        for number in range(PROCESSES)
    ]
    asked_ns: dict[int, int] = {}
    try:
        for worker in workers:
            worker.wait_ready()
        time.sleep(SETTLE_S)
        with server.statements() as resting:
            connections = server.connections(url)
            time.sleep(WATCH_S)
        with server.statements() as moving:
            _submit(url, COUNTED, pause_s=(2.5, 3.5))
        at_rest, _ = _spent(server, workers, lambda: time.sleep(WATCH_S / 2))
        at_work, took_s = _spent(server, workers, lambda: asked_ns.update(_submit(url, SAMPLES, pause_s=(0.2, 0.6))))
        time.sleep(5)
        notes = [note for worker in workers for note in worker.stop()]
    finally:
        for worker in workers:
            worker.__exit__()
    waited_ms = [(note.at_ns - asked_ns[note.key]) / 1e6 for note in notes if note.key in asked_ns]
    if len(waited_ms) != SAMPLES:
        raise RuntimeError(f"{SAMPLES} jobs added, {len(waited_ms)} begun")
    claims = _claims(moving.texts(url)) - _claims(resting.texts(url)) * moving.seconds / resting.seconds
    each_ms = took_s / SAMPLES * 1e3
    return [
        Figure(
            name=f"{HOSTS} hosts at rest, statements per host", unit="1/s",
            ours=resting.to(url) / resting.seconds / HOSTS, target=0.6,
        ),
        Figure(name=f"{HOSTS} hosts at rest, connections per host", unit="", ours=connections / HOSTS, target=1),
        Figure(name=f"{HOSTS} hosts at rest, PostgreSQL's processor time", unit="cores", ours=at_rest.server),
        Figure(name=f"{HOSTS} hosts at rest, a daemon's processor time", unit="ms/s", ours=at_rest.daemons),
        Figure(name=f"{HOSTS} hosts, claims sent for one job", unit="", ours=claims / COUNTED),
        Figure(
            name=f"{HOSTS} hosts, PostgreSQL's processor time for one job", unit="ms",
            ours=(at_work.server - at_rest.server) * each_ms,
        ),
        Figure(
            name=f"{HOSTS} hosts, all daemons' processor time for one job", unit="ms",
            ours=(at_work.daemons - at_rest.daemons) * each_ms,
        ),
        *latencies(f"pickup by {HOSTS} idle hosts, all on this machine", waited_ms, p99_ms=100),
    ]  # fmt: skip


def _claims(texts: Mapping[str, int]) -> int:
    return sum(number for text, number in texts.items() if text.startswith("daemon claim"))


def _submit(url: str, jobs: int, *, pause_s: tuple[float, float]) -> dict[int, int]:
    spread = random.Random(jobs)  # noqa: S311 - spreads the submissions over the hosts' own rhythm
    asked_ns = {}
    with psycopg.connect(url) as connection:
        for _ in range(jobs):
            number = ours.submit(connection)
            asked_ns[number] = time.monotonic_ns()
            connection.commit()
            time.sleep(spread.uniform(*pause_s))
    return asked_ns


def _spent(server: Server, workers: Sequence[Worker], action: Callable[[], object]) -> tuple[Spent, float]:
    """What was spent during an action, and how many seconds that took."""

    def used_s() -> tuple[float, float]:
        return server.cpu_s(), sum(cpu_s(worker.pid) for worker in workers)

    server_s, daemons_s = used_s()
    began_s = time.monotonic()
    action()
    took_s = time.monotonic() - began_s
    server_now_s, daemons_now_s = used_s()
    return Spent(server=(server_now_s - server_s) / took_s, daemons=(daemons_now_s - daemons_s) / took_s), took_s
