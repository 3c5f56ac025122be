"""The gateway under load: 1,000 clients that poll or hold a stream, 200 submissions, and what a daemon's claim waits.

Each part is a process of its own: the gateway with a login of its role, the clients, a daemon that claims and completes
jobs without containers, and a website that reads the database as kernelboard does. The database is a real PostgreSQL.
All share the machine's cores. 900 clients poll a submission every 5 seconds as popcorn-cli does, 100 submit by a stream
and hold it, 100 more submissions come by POST, half of all are ranked. Printed: polls as the clients see them, all
answers by the gateway's own histogram, claims beside those without clients, memory, and size and time of pages at rest.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import psycopg

from development.stack import Stack
from runner.base.errors import StaleAttemptError
from runner.base.model import Mode, Verdict
from runner.extras.gateway.identity import digest
from runner.store import Store
from tests.benchmarks._live import database
from tests.integration.extras.gateway.conftest import ADMIN, Gate, board_login, gateway_login, multipart
from tests.integration.extras.gateway.test_kernelboard import BOARD, OWN, SUMMARIES
from tests.integration.extras.gateway.test_sizes import crowd, pages
from tests.integration.store.conftest import Bench, ranked, result, run_record

POLLERS = 900
STREAMS = 100
POSTED = 100
USERS = 50
EVERY_S = 5.0
LOAD_S = 60.0
ALONE_S = 15.0
CLAIM_EVERY_S = 0.1
SITE_EVERY_S = 1.0
PORT = 18431
#: Submissions that are stored and over before the clients come.
HISTORY = 2000
MODES = ("test", "leaderboard")
TESTED = run_record("test", result={"test-count": "1", "test.0.status": "pass"})
PAGE_TURNS = 30
PATIENCE_S = 60.0


@dataclass
class Figures:
    """Seconds, and what went wrong."""

    polls: list[float] = field(default_factory=list)
    posts: list[float] = field(default_factory=list)
    streams: int = 0
    wrong: list[str] = field(default_factory=list)
    ids: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Asks:
    """A request."""

    method: str
    path: str
    user: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def daemon(url: str, over: Event, told: Connection) -> None:
    """Claim and complete until `over`; tells when each claim began and how long it took, in seconds."""
    bench = Bench(store=Store(url, application_name="benchmark daemon"), url=url)
    claims: list[tuple[float, float]] = []
    while not over.wait(CLAIM_EVERY_S):
        began = time.monotonic()
        jobs = bench.store.claim(host="host-a", slots={"CPU": 1}, lease_s=60).jobs
        claims.append((began, time.monotonic() - began))
        for job in jobs:
            with suppress(StaleAttemptError):
                bench.store.complete(
                    job, ranked(job) if job.mode is Mode.LEADERBOARD else result(Verdict.ACCEPTED, TESTED)
                )
    bench.store.close()
    told.send(claims)


def website(url: str, over: Event, told: Connection) -> None:
    """Read what kernelboard's pages read until `over`; tells how long each page's statement took, in seconds."""
    took: list[float] = []
    with psycopg.connect(url, autocommit=True) as connection:
        while not over.wait(SITE_EVERY_S):
            for statement in (SUMMARIES, BOARD, OWN):
                began = time.monotonic()
                connection.execute(statement.encode()).fetchall()
                took.append(time.monotonic() - began)
    told.send(took)


class Beside:
    """A function of the two above as a process."""

    def __init__(self, work: Callable[[str, Event, Connection], None], url: str) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._over = spawning.Event()
        self._told, end = spawning.Pipe(duplex=False)
        self._process = spawning.Process(target=work, args=(url, self._over, end), daemon=True)
        self._process.start()

    def end(self) -> list[Any]:
        """What it tells at its end; nothing the second time."""
        self._over.set()
        if not self._process.is_alive():
            return []
        found: list[Any] = self._told.recv() if self._told.poll(PATIENCE_S) else []
        self._process.join(PATIENCE_S)
        return found


async def main_of_clients(port: int, figures: Figures) -> None:
    """All clients for `LOAD_S`."""
    until = time.monotonic() + LOAD_S
    drawn = random.Random(7)  # noqa: S311 - the same load each time
    submitters = [submit(port, number, figures, drawn.uniform(0, LOAD_S * 0.6)) for number in range(POSTED)]
    holders = [hold(port, number, figures, drawn.uniform(0, LOAD_S * 0.6)) for number in range(STREAMS)]
    pollers = [poll(port, number, figures, until, drawn.uniform(0, EVERY_S)) for number in range(POLLERS)]
    ends = await asyncio.gather(*submitters, *holders, *pollers, return_exceptions=True)
    figures.wrong += [f"{type(end).__name__}: {end}" for end in ends if isinstance(end, Exception)]


async def submit(port: int, number: int, figures: Figures, after_s: float) -> None:
    """One submission by POST."""
    await asyncio.sleep(after_s)
    user = f"u{number % USERS}"
    body, headers = multipart(f"# {number}\n".encode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    status, answer = await asked(
        reader,
        writer,
        Asks(
            method="POST", path=f"/submission/identity/CPU/{MODES[number % 2]}", user=user, body=body, headers=headers
        ),
    )
    figures.posts.append(time.monotonic() - began)
    writer.close()
    if status == 202:
        figures.ids.append((json.loads(answer)["details"]["id"], user))
    else:
        figures.wrong.append(f"POST {status} {answer[:100]!r}")


async def hold(port: int, number: int, figures: Figures, after_s: float) -> None:
    """One submission by a stream, held to its end."""
    await asyncio.sleep(after_s)
    body, headers = multipart(f"# stream {number}\n".encode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await sent(
        writer,
        Asks(
            method="POST",
            path=f"/identity/CPU/{MODES[number % 2]}",
            user=f"u{number % USERS}",
            body=body,
            headers={**headers, "Connection": "close"},
        ),
    )
    async with asyncio.timeout(LOAD_S * 3):
        told = await reader.read(-1)
    writer.close()
    if b"event: result" in told:
        figures.streams += 1
    else:
        figures.wrong.append(f"stream {told[:100]!r}")


async def poll(port: int, number: int, figures: Figures, until: float, after_s: float) -> None:
    """A client that asks for one submission again and again, on a connection that it keeps."""
    await asyncio.sleep(after_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        if figures.ids:
            submission_id, user = figures.ids[number % len(figures.ids)]
            began = time.monotonic()
            status, answer = await asked(
                reader, writer, Asks(method="GET", path=f"/user/submissions/{submission_id}", user=user)
            )
            figures.polls.append(time.monotonic() - began)
            if status != 200:
                figures.wrong.append(f"poll {status} {answer[:100]!r}")
        await asyncio.sleep(EVERY_S)
    writer.close()


async def sent(writer: asyncio.StreamWriter, asks: Asks) -> None:
    """Send a request."""
    lines = [f"{asks.method} {asks.path} HTTP/1.1", "Host: x", f"X-Popcorn-Cli-Id: {asks.user}-token"]
    headers = {"Content-Length": str(len(asks.body)), **asks.headers}
    lines += [f"{key}: {value}" for key, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + asks.body)
    await writer.drain()


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asks: Asks) -> tuple[int, bytes]:
    """Status and body of an answer."""
    async with asyncio.timeout(PATIENCE_S):
        await sent(writer, asks)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        return int(head.split()[1]), await reader.readexactly(length)


def memory_mib(pid: int, key: str) -> float:
    """Memory of a process: `VmRSS` now, `VmHWM` at most."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(key))) / 1024


def worked_s(pid: int) -> float:
    """Seconds that a process has had a core: a figure that other programs' load changes little."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def told(name: str, seconds: list[float]) -> str:
    """Median, 99th percentile and maximum in milliseconds."""
    if len(seconds) < 2:
        return f"{name}: {len(seconds)}"
    cuts = statistics.quantiles(seconds, n=100)
    p50, p99, most = (value * 1e3 for value in (cuts[49], cuts[98], max(seconds)))
    return f"{name}: {len(seconds)}, p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {most:.1f} ms"


def within(gate: Gate, bounds: tuple[str, ...]) -> str:
    """How many of the gateway's answers took at most so many seconds, by its own histogram."""
    text = gate.ask("GET", "/metrics", admin=ADMIN).text
    name = "kernel_runner_gateway_request_seconds"
    count = float(re.findall(rf"^{name}_count (\S+)$", text, re.MULTILINE)[0])
    parts = []
    for bound in bounds:
        (fast,) = re.findall(rf'^{name}_bucket{{le="{re.escape(bound)}"}} (\S+)$', text, re.MULTILINE)
        parts.append(f"{float(fast) / count:.2%} in {bound} s")
    return f"{count:.0f} answers by the gateway's own clock: {', '.join(parts)}"


def print_pages(gate: Gate) -> None:
    """Print the size of each page, as full as it can be, and how long it takes at rest, as a client sees it."""
    crowd(gate)
    for browser, path in pages(gate):
        took = []
        for _ in range(PAGE_TURNS):
            began = time.monotonic()
            answer = browser.get(path)
            took.append(time.monotonic() - began)
        print(f"{told(f'page {path[:30]}', took)}, {len(answer.body) / 1000:.1f} KB")


def fill(bench: Bench) -> None:
    """A board with users, and a history of ranked submissions."""
    bench.board()
    bench.register("host-a", "CPU")
    for number in range(USERS):
        bench.store.set_token(f"u{number}", user_name=None, digest=digest(f"u{number}-token"))
    for number in range(HISTORY):
        bench.submit(
            user_id=f"u{number % USERS}", code=f"# history {number}\n".encode(), mode="leaderboard", user_name=None
        )
        for _ in range(2):
            job = bench.claim()
            bench.store.complete(job, ranked(job, 1e-3 / (number + 100)))


def main() -> None:
    """Measure and print."""
    with database("gateway") as url, tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as folder:
        bench = Bench(store=Store(url, application_name="benchmark"), url=url)
        fill(bench)
        stack = Stack(Path(folder) / "stack")
        stack.admin_token_file.write_text(f"{ADMIN}\n", encoding="utf-8")
        settings = {
            "gateway_listen": f"127.0.0.1:{PORT}",
            "database_url": gateway_login(url),
            "gateway_requests_per_minute": 1_000_000,
            "gateway_admin_token_file": str(stack.admin_token_file),
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        stack.config_file.write_text("\n".join(lines), encoding="utf-8")
        if stack.serve_gateway() is None:
            print(stack.gateway_log.read_text(encoding="utf-8"), file=sys.stderr)
            return
        pid = stack.start_gateway()
        gate = Gate(port=PORT, bench=bench, owner_url=url)
        claiming = reading = None
        try:
            began_mib = memory_mib(pid, "VmRSS")
            claiming, reading = Beside(daemon, url), Beside(website, board_login(url))
            time.sleep(ALONE_S)
            figures = Figures()
            load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
            worked, mine, began = worked_s(pid), time.process_time(), time.monotonic()
            asyncio.run(main_of_clients(PORT, figures))
            worked, mine, lasted = worked_s(pid) - worked, time.process_time() - mine, time.monotonic() - began
            after = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
            claims, reads = claiming.end(), reading.end()
            print(f"load of the machine before {load}, after {after}; cores {os.cpu_count()}")
            print(told("polls", figures.polls))
            print(within(gate, ("0.05", "0.1", "0.15", "0.25")))
            requests = len(figures.polls) + len(figures.posts) + figures.streams
            print(f"processor time of the gateway per request: {worked / max(1, requests) * 1e3:.2f} ms")
            print(f"cores in use: gateway {worked / lasted:.2f}, clients {mine / lasted:.2f}")
            print(told("submissions by POST", figures.posts))
            print(f"streams that ended with a result: {figures.streams} of {STREAMS}")
            print(told("claims without clients", [took for at, took in claims if at < began]))
            print(told("claims beside the clients", [took for at, took in claims if began <= at < began + lasted]))
            print(told("statements of the website", reads))
            print(f"memory of the gateway: {began_mib:.0f} MiB before, at most {memory_mib(pid, 'VmHWM'):.0f} MiB")
            print(f"wrong: {len(figures.wrong)} {sorted(set(figures.wrong))[:5]}")
            for user in ("ada", "bob"):
                bench.store.set_token(user, user_name=None, digest=digest(f"{user}-token"))
            print_pages(gate)
        finally:
            for process in (claiming, reading):
                if process is not None:
                    process.end()
            stack.stop_gateway()
            bench.store.close()
