"""A thousand watchers of a live leaderboard: what reaches them, how late, and what it costs.

A real gateway in a process of its own before a PostgreSQL of its own, with a leaderboard on which a thousand users
rank. The benchmark's process has the watchers' connections. Records are real ranked submissions with both of their
jobs, now and then two at once, announced as daemons do. The delay of a record is from before its announcement to the
moment when a watcher has read a state with it.

`make bench ARGS="watching --watchers 100 --records 20"`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from runner.extras.boards.store import BoardStore
from tests.benchmarks._live import database
from tests.integration.store.conftest import Bench, ranked
from tests.support.ports import free_port
from tests.support.waiting import wait_until

USERS = 1000
#: Between records, and before the first, when every watcher has the present state.
BETWEEN_S = 0.8
FIRST_S = 6.0
#: What the last record is waited for, and the connections.
PATIENCE_S = 60.0
_KEY = re.compile(rb'data-key=\\"record (\d+)')
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def main(options: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="watching")
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--records", type=int, default=60)
    chosen = parser.parse_args(options)
    with database("watching") as url, gateway(url) as (port, process):
        bench = Bench(store=BoardStore(url, application_name="kernel-runner bench"), url=url)
        bench.board()
        fill(url)
        began_s, began = core_seconds(process.pid), time.monotonic()
        seen, announced = asyncio.run(_measure(bench, port, watchers=chosen.watchers, records=chosen.records))
        cores = (core_seconds(process.pid) - began_s) / (time.monotonic() - began)
        bench.store.close()
    delays_ms = [
        (moments[number] - at) * 1e3 for moments in seen for number, at in announced.items() if number in moments
    ]
    missed = chosen.watchers * chosen.records - len(delays_ms)
    cuts = statistics.quantiles(delays_ms, n=100)
    print(
        f"watchers {chosen.watchers}, records {chosen.records}, missed {missed} of {chosen.watchers * chosen.records}"
    )
    print(f"delay p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms, longest {max(delays_ms):.0f} ms")
    print(f"the gateway used {cores:.2f} of a core")


@contextmanager
def gateway(url: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A gateway in a process of its own: its port, and the process."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as name:
        config = Path(name) / "config.toml"
        config.write_text(
            f'database_url = "{url}"\nstate_dir = "{name}"\ngateway_listen = "127.0.0.1:{port}"\n'
            "gateway_requests_per_minute = 1000000\ngateway_streams = 4000\n",
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "runner.cli", "--config", str(config), "gateway"]
        process = subprocess.Popen(command)
        try:
            wait_until(lambda: _connects(port), "the gateway takes connections")
            yield port, process
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _connects(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def fill(url: str) -> None:
    """A thousand users who rank."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            b"WITH u AS (INSERT INTO leaderboard.user_info (id, user_name) SELECT 'r' || i, 'User ' || i"
            b" FROM generate_series(1, %d) AS i RETURNING id), c AS (INSERT INTO leaderboard.code_files (code)"
            b" VALUES ('x') RETURNING id), s AS (INSERT INTO leaderboard.submission (leaderboard_id, file_name,"
            b" user_id, code_id, submission_time, done) SELECT 1, 'x.py', u.id, c.id, now(), true FROM u, c"
            b" RETURNING id)"
            b" INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed,"
            b" system_info) SELECT s.id, now(), now(), 'leaderboard', k.secret, 'CPU', 1 + 0.001 * s.id, true, '{}'"
            b" FROM s, (VALUES (false), (true)) AS k (secret)" % USERS
        )
        connection.execute(
            "INSERT INTO runner.score SELECT r.id, 1, r.runner, s.user_id, r.score, s.submission_time, s.id"
            " FROM leaderboard.runs r JOIN leaderboard.submission s ON s.id = r.submission_id WHERE NOT r.secret"
        )
        connection.execute("ANALYZE")


async def _measure(
    bench: Bench, port: int, *, watchers: int, records: int
) -> tuple[list[dict[int, float]], dict[int, float]]:
    """When each watcher saw each record, and when each was announced; monotonic seconds."""
    seen: list[dict[int, float]] = [{} for _ in range(watchers)]
    announced: dict[int, float] = {}
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []
    for moments in seen:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(b"GET /board/identity/live/events?gpu=CPU HTTP/1.1\r\nHost: x\r\n\r\n")
        # One that nobody refers to closes its connection.
        writers.append(writer)
        tasks.append(asyncio.create_task(_watch(reader, moments)))
    await asyncio.sleep(FIRST_S)
    for number in range(records):
        await asyncio.to_thread(_record, bench, number, announced)
        await asyncio.sleep(BETWEEN_S if number % 6 < 4 else 0)

    def complete() -> bool:
        return all(moments.keys() >= announced.keys() for moments in seen)

    with suppress(AssertionError):
        await asyncio.to_thread(wait_until, complete, "every watcher has every record", patience_s=PATIENCE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        writer.close()
    return seen, announced


async def _watch(reader: asyncio.StreamReader, moments: dict[int, float]) -> None:
    while line := await reader.readline():
        if line.startswith(b"data: "):
            at = time.monotonic()
            for key in _KEY.findall(line):
                moments.setdefault(int(key), at)


def _record(bench: Bench, number: int, announced: dict[int, float]) -> None:
    """One ranked submission, the best so far."""
    submission_id = bench.submit(mode="leaderboard", user_id=f"w{number % 7}", code=f"# {number}".encode())
    for _ in range(2):
        job = bench.claim()
        bench.store.complete(job, ranked(job, 1e-3 / (number + 1)))
        if job.secret:
            announced[submission_id] = time.monotonic()
        bench.store.announce(events=[{"event": "done", "submission_id": submission_id}])


def core_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


if __name__ == "__main__":
    main(sys.argv[1:])
