"""A thousand simulated hosts with eight slots each on one PostgreSQL: what they cost it, and how soon a job is begun.

Each is one real connection, in one process. It does what a daemon's connections do: it registers, claims at a daemon's
pace, listens by a daemon's rule, and commits results. There is no thread, slot or container behind it, so that the
machine's processors serve the server.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from runner import __version__
from runner.base.config import Config
from runner.base.model import Job, JobResult, Verdict
from runner.daemon.listener import reaction_delay_s
from runner.daemon.loop import _POLL_SPREAD
from runner.store.base import text_array
from runner.store.claims import _job
from runner.store.clean import to_jsonb
from runner.store.queries import QUERIES
from runner.store.results import _result
from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies
from tests.benchmarks.queue.server import Server

HOSTS: Final = 1000
SLOTS: Final = 8
TYPE: Final = "CPU"
SETTLE_S: Final = 15.0
WATCH_S: Final = 30.0
SAMPLES: Final = 200
LEASE_S: Final = 60.0


@dataclass
class Host:
    """One simulated host. Its jobs are over at once."""

    url: str
    number: int
    hosts: Hosts
    rivals: int = 1

    @property
    def name(self) -> str:
        """By which the database knows it."""
        return f"simulated-{self.number}"

    async def run(self) -> None:
        """Serve until the hosts are told to stop."""
        async with self.hosts.arriving:
            connection = await psycopg.AsyncConnection.connect(
                self.url, autocommit=True, application_name="daemon claim", row_factory=dict_row
            )
        async with connection:
            slots = [{"name": f"slot{n}", "gpu_type": TYPE, "devices": [], "cpus": [n]} for n in range(SLOTS)]
            host = {
                "name": self.name,
                "version": __version__,
                "slots": to_jsonb(slots),
                "instance": self.name,
                "gpu_types": [TYPE],
            }
            await connection.execute(QUERIES["register"].sql, host)
            self.hosts.serving += 1
            for query in (QUERIES["listen_queue"], QUERIES["listen_hosts"]):
                await connection.execute(query.sql)
            while not self.hosts.stopped:
                while await self._claim(connection):
                    pass
                await self._wait(connection)

    async def _claim(self, connection: psycopg.AsyncConnection[dict[str, Any]]) -> bool:
        """One claim; whether it brought jobs and there may be more."""
        parameters = {
            "host": self.name,
            "gpu_types": text_array([TYPE]),
            "free": text_array([str(SLOTS)]),
            "lease_s": LEASE_S,
            "instance": self.name,
        }
        rows = await (await connection.execute(QUERIES["claim"].sql, parameters)).fetchall()
        now_ns = time.monotonic_ns()
        self.rivals = rows[0]["rivals"] or self.rivals
        jobs = [job for row in rows if row["id"] is not None and isinstance(job := _job(row), Job)]
        for job in jobs:
            self.hosts.begun_ns[job.submission_id or 0] = now_ns
        if jobs:
            done = JobResult(verdict=Verdict.ACCEPTED, runs=(), error=None, report={}, build_ns=1, eval_ns=1)
            await connection.execute(
                QUERIES["complete"].sql, {"results": to_jsonb([_result(job, done) for job in jobs])}
            )
        return bool(jobs)

    async def _wait(self, connection: psycopg.AsyncConnection[dict[str, Any]]) -> None:
        """Until the next poll, or a notification that this host acts on."""
        low, high = _POLL_SPREAD
        until_s = time.monotonic() + random.uniform(low, high) * Config().poll_s  # noqa: S311 - a pause
        while (left_s := until_s - time.monotonic()) > 0:
            async for note in connection.notifies(timeout=left_s, stop_after=1):
                if TYPE in note.payload.split(","):
                    await asyncio.sleep(reaction_delay_s(self.rivals))
                    return


class Hosts:
    """All of them, in a thread with one event loop."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stopped = False
        self.serving = 0
        #: Submission -> when a host had it in hand.
        self.begun_ns: dict[int, int] = {}
        self.errors: list[BaseException] = []
        #: Few hosts connect at the same time.
        self.arriving: asyncio.Semaphore

    @contextmanager
    def running(self) -> Iterator[Hosts]:
        """All of them, connected one after the other."""
        thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        thread.start()
        try:
            while self.serving < HOSTS:
                if self.errors or not thread.is_alive():
                    raise RuntimeError(f"{self.serving} of {HOSTS} hosts serve: {self.errors[:3]}")
                time.sleep(0.5)
            yield self
        finally:
            self.stopped = True
            thread.join(60)

    async def _run(self) -> None:
        self.arriving = asyncio.Semaphore(8)
        tasks = [Host(self.url, number, self).run() for number in range(HOSTS)]
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, BaseException):
                self.errors.append(found)


def measure(server: Server) -> list[Figure]:
    """At rest, and with a job now and then."""
    url = server.database("site")
    ours.install(url)
    figures: list[Figure] = []
    hosts = Hosts(url)
    with hosts.running():
        time.sleep(SETTLE_S)
        # A thousand hosts in one process are one heap: a collection of all of it stops every host longer than any of
        # them would stop in a process of its own. What is there by now stays, and is looked at no more.
        gc.collect()
        gc.freeze()
        with server.statements() as resting:
            connections = server.connections(url)
            used_s = server.cpu_s()
            time.sleep(WATCH_S)
            rest = (server.cpu_s() - used_s) / WATCH_S
        figures += [
            Figure(name=f"{HOSTS} hosts at rest, statements per host", unit="1/s",
                   ours=resting.to(url) / resting.seconds / HOSTS, target=0.6),
            Figure(name=f"{HOSTS} hosts at rest, connections per host", unit="", ours=connections / HOSTS, target=1),
            Figure(name=f"{HOSTS} hosts at rest, PostgreSQL's processor time", unit="cores", ours=rest),
        ]  # fmt: skip
        used_s, began_s = server.cpu_s(), time.monotonic()
        asked_ns = _submit(url, SAMPLES, pause_s=(0.1, 0.3))
        took_s = time.monotonic() - began_s
        each_ms = (server.cpu_s() - used_s - rest * took_s) / SAMPLES * 1e3
        time.sleep(5)
        figures += [
            Figure(name=f"{HOSTS} hosts, PostgreSQL's processor time for one job", unit="ms", ours=each_ms),
            *latencies(f"pickup by {HOSTS} idle hosts", _waited_ms(asked_ns, hosts), p99_ms=100),
        ]
    gc.unfreeze()
    with suppress(IndexError):
        raise hosts.errors[0]
    return figures


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


def _waited_ms(asked_ns: Mapping[int, int], hosts: Hosts) -> list[float]:
    left = [number for number in asked_ns if number not in hosts.begun_ns]
    if left:
        raise RuntimeError(f"{len(left)} of {len(asked_ns)} jobs were not begun")
    return [(hosts.begun_ns[number] - asked) / 1e6 for number, asked in asked_ns.items()]
