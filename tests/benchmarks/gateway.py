"""The gateway under load: 1,000 clients that poll or hold a stream, 200 submissions, and what a daemon's claim waits.

The gateway is a process of its own with a login of its role; the database is a real PostgreSQL. The clients are
coroutines of this process, on the same cores: 900 poll a submission every 5 seconds as popcorn-cli does, 100 submit by
a stream and hold it, 100 more submissions come by POST. A thread claims and completes jobs as a daemon does, without
containers. Printed: polls, claims beside that without clients, the gateway's memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from runner.cli.stack import Stack
from runner.errors import StaleAttemptError
from runner.gateway.identity import digest
from runner.model import Verdict
from runner.store import Store
from tests.benchmarks._live import database
from tests.integration.gateway.conftest import ADMIN, gateway_login, multipart
from tests.integration.store.conftest import Bench, result, run_record

POLLERS = 900
STREAMS = 100
POSTED = 100
USERS = 50
EVERY_S = 5.0
LOAD_S = 60.0
ALONE_S = 15.0
CLAIM_EVERY_S = 0.1
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


class Daemon(threading.Thread):
    """Claims and completes, and notes how long each claim takes, in seconds."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.bench = Bench(store=Store(url, application_name="benchmark daemon"), url=url)
        self.claims: list[float] = []
        self.done = 0
        self.over = threading.Event()

    def run(self) -> None:
        """Until `over`."""
        while not self.over.wait(CLAIM_EVERY_S):
            began = time.monotonic()
            jobs = self.bench.store.claim(host="host-a", slots={"CPU": 1}, lease_s=60).jobs
            self.claims.append(time.monotonic() - began)
            for job in jobs:
                with suppress(StaleAttemptError):
                    record = run_record("test", result={"test-count": "1", "test.0.status": "pass"})
                    self.bench.store.complete(job, result(Verdict.ACCEPTED, record))
                self.done += 1
        self.bench.store.close()


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
        reader, writer, Asks(method="POST", path="/submission/identity/CPU/test", user=user, body=body, headers=headers)
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
            path="/identity/CPU/test",
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


def main() -> None:
    """Measure and print."""
    with database("gateway") as url, tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as folder:
        bench = Bench(store=Store(url, application_name="benchmark"), url=url)
        bench.board()
        bench.register("host-a", "CPU")
        for number in range(USERS):
            bench.store.set_token(f"u{number}", user_name=None, digest=digest(f"u{number}-token"))
        stack = Stack(Path(folder) / "stack")
        stack.admin_token_file.write_text(f"{ADMIN}\n", encoding="utf-8")
        listen = 'gateway_listen = "127.0.0.1:18431"'
        lines = [listen, f"database_url = {json.dumps(gateway_login(url))}", "gateway_requests_per_minute = 1000000"]
        stack.config_file.write_text("\n".join(lines), encoding="utf-8")
        if stack.serve_gateway() is None:
            print(stack.gateway_log.read_text(encoding="utf-8"), file=sys.stderr)
            return
        pid = stack.start_gateway()
        daemon = Daemon(url)
        try:
            began_mib = memory_mib(pid, "VmRSS")
            daemon.start()
            time.sleep(ALONE_S)
            alone, daemon.claims = daemon.claims, []
            figures = Figures()
            load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
            worked = worked_s(pid)
            asyncio.run(main_of_clients(18431, figures))
            worked = worked_s(pid) - worked
            after = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
            print(f"load of the machine before {load}, after {after}")
            print(told("polls", figures.polls))
            requests = len(figures.polls) + len(figures.posts) + figures.streams
            print(f"processor time of the gateway per request: {worked / max(1, requests) * 1e3:.2f} ms")
            print(told("submissions by POST", figures.posts))
            print(f"streams that ended with a result: {figures.streams} of {STREAMS}; jobs done: {daemon.done}")
            print(told("claims without clients", alone))
            print(told("claims beside the clients", daemon.claims))
            print(f"memory of the gateway: {began_mib:.0f} MiB before, at most {memory_mib(pid, 'VmHWM'):.0f} MiB")
            print(f"wrong: {len(figures.wrong)} {sorted(set(figures.wrong))[:5]}")
        finally:
            daemon.over.set()
            daemon.join(PATIENCE_S)
            stack.stop_gateway()
            bench.store.close()
