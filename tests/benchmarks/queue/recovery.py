"""How soon a dead host's jobs run elsewhere, and how soon a running job hears of its cancellation; default settings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import psycopg

from runner.base.config import Config
from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies, percentile
from tests.benchmarks.queue.server import Server
from tests.benchmarks.queue.worker import Worker

DEATHS: Final = 2
HEARTBEAT_S: Final = Config().heartbeat_s
CANCELS: Final = 40


def measure(server: Server) -> list[Figure]:
    """Death and cancellation."""
    return [*_deaths(server), *latencies("cancel of a running job, call to stop", _cancels(server), p99_ms=2000)]


def _deaths(server: Server) -> list[Figure]:
    """A process with several hosts is killed; other hosts of the same GPU types stand by."""
    waited_s: list[float] = []
    for number in range(DEATHS):
        url = server.database("death")
        ours.install(url)
        with (
            Worker(ours.__name__, url=url, hosts=len(ours.TYPES), name="doomed", slots=1) as doomed,
            psycopg.connect(url, autocommit=True) as connection,
        ):
            doomed.wait_ready()
            jobs = [ours.submit(connection, code=ours.ENDLESS, gpu_type=name) for name in ours.TYPES]
            _wait_running(connection, jobs)
            with Worker(ours.__name__, url=url, hosts=len(ours.TYPES), name="heir", slots=1) as heir:
                heir.wait_ready()
                # At another point between two heartbeats each time.
                time.sleep(7 + HEARTBEAT_S * number / DEATHS)
                killed_ns = time.monotonic_ns()
                doomed.kill()
                _wait_moved(connection, jobs)
                for job in jobs:
                    connection.execute("SELECT runner.cancel(%s)", (job,))
                begun = {note.key: note.at_ns for note in heir.stop() if note.what == "start"}
        waited_s += [(begun[job] - killed_ns) / 1e9 for job in jobs]
    return [
        Figure(name="host dies, job runs elsewhere, median", unit="s", ours=percentile(waited_s, 0.5)),
        Figure(name="host dies, job runs elsewhere, longest", unit="s", ours=max(waited_s), target=30),
    ]


def _cancels(server: Server) -> list[float]:
    url = server.database("cancel")
    ours.install(url)
    asked_ns: dict[int, int] = {}
    with Worker(ours.__name__, url=url, slots=4) as worker, psycopg.connect(url, autocommit=True) as connection:
        worker.wait_ready()
        for _ in range(CANCELS):
            number = ours.submit(connection, code=ours.ENDLESS)
            _wait_running(connection, [number])
            asked_ns[number] = time.monotonic_ns()
            connection.execute("SELECT runner.cancel(%s)", (number,))
            time.sleep(0.3)
        notes = worker.stop()
    return [(note.at_ns - asked_ns[note.key]) / 1e6 for note in notes if note.what == "stop"]


def _wait_running(connection: psycopg.Connection[tuple[object, ...]], submissions: Iterable[int]) -> None:
    _wait(connection, "SELECT bool_and(state = 'running') FROM runner.job WHERE submission_id = ANY (%s)", submissions)


def _wait_moved(connection: psycopg.Connection[tuple[object, ...]], submissions: Iterable[int]) -> None:
    query = (
        "SELECT bool_and(state = 'running' AND lease_owner LIKE 'heir%%') FROM runner.job"
        " WHERE submission_id = ANY (%s)"
    )
    _wait(connection, query, submissions)


def _wait(connection: psycopg.Connection[tuple[object, ...]], query: str, submissions: Iterable[int]) -> None:
    deadline_s = time.monotonic() + 120
    numbers = list(submissions)
    while (found := connection.execute(query.encode(), (numbers,)).fetchone()) is None or not found[0]:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"never so: {query}")
        time.sleep(0.02)
