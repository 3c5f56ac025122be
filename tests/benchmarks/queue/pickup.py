"""How long a job waits for an idle worker: from asking for its commit to the moment a worker has it in hand.

The worker is a process of its own, at rest; the three queues take turns.
"""

from __future__ import annotations

import random
import time
from typing import Final

import psycopg

from tests.benchmarks.queue.contenders import Contender, contender, peers
from tests.benchmarks.queue.figures import Figure, latencies
from tests.benchmarks.queue.server import Server
from tests.benchmarks.queue.worker import Worker

ROUNDS: Final = 2
WARM_UP: Final = 10
SAMPLES: Final = 100
SLOTS: Final = 8


def measure(server: Server) -> list[Figure]:
    """Pickup by each queue."""
    sides = [contender("ours", slots=SLOTS), *(contender(name, **PEER_OPTIONS[name]) for name in peers())]
    samples_ms: dict[str, list[float]] = {side.name: [] for side in sides}
    urls = {side.name: server.database(side.name) for side in sides}
    for side in sides:
        side.side.install(urls[side.name])
    for number in range(ROUNDS):
        for side in sides:
            samples_ms[side.name] += _waited_ms(side, urls[side.name], seed=number)
    mine = samples_ms.pop("ours")
    return latencies("pickup by an idle host", mine, samples_ms, p50_ms=10, p99_ms=50)


PEER_OPTIONS: Final[dict[str, dict[str, object]]] = {"procrastinate": {"slots": SLOTS}, "pgqueuer": {"batch": 10}}


def _waited_ms(side: Contender, url: str, *, seed: int) -> list[float]:
    pause = random.Random(seed)  # noqa: S311 - spreads the submissions over the worker's own rhythm
    asked_ns: dict[int, int] = {}
    with Worker(side.module, url=url, **side.options) as worker, psycopg.connect(url) as connection:
        worker.wait_ready()
        time.sleep(2)
        for number in range(WARM_UP + SAMPLES):
            key = side.side.insert(connection)
            now_ns = time.monotonic_ns()
            connection.commit()
            if number >= WARM_UP:
                asked_ns[key] = now_ns
            time.sleep(pause.uniform(0.06, 0.18))
        notes = worker.stop()
    waited_ms = [(note.at_ns - asked_ns[note.key]) / 1e6 for note in notes if note.key in asked_ns]
    if len(waited_ms) != SAMPLES:
        raise RuntimeError(f"{side.name}: {SAMPLES} jobs added, {len(waited_ms)} begun")
    return waited_ms
