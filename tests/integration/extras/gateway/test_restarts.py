"""Gateway and database restart while clients poll and submit: no submission is lost or doubled, and no client ends.

The gateway is the real command, but more patient, as systemd starts it: the listening socket outlives the process. The
database is a server of its own that is really stopped and started. The clients do as popcorn-cli does: one poll that
fails ends them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from runner.base.model import Verdict
from runner.extras.boards.store import BoardStore
from runner.store import migrate
from tests.chaos.server import Server as Postgres
from tests.integration.extras.gateway.conftest import (
    ADMIN,
    Answer,
    ask,
    gateway_login,
    multipart,
    set_token,
    streamed,
)
from tests.integration.store.conftest import Bench, result, run_record
from tests.support.waiting import PATIENCE_S, wait_until

#: popcorn-cli polls every 5 seconds; here more often, so that more polls meet a restart.
EVERY_S = 0.1
POLLERS = 12
SUBMITTERS = 4
#: How long the database is away, and how long a request waits for it: much longer than at a site, because a busy
#: machine may need more than those 28 seconds to start a server again.
AWAY_S, WAITS_S = 3.0, 300.0
#: `kernel-runner`, with the time for which a request waits as the first argument.
COMMAND = """
import sys
from runner.extras import store
store.PATIENCE_S = store.AsyncStore.__init__.__kwdefaults__["patience_s"] = float(sys.argv[1])
from runner.cli import main
sys.exit(main(sys.argv[2:]))
"""


@dataclass
class Server:
    """A gateway behind a socket that outlives it."""

    folder: Path
    url: str
    listening: socket.socket
    process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listening.getsockname()[1])

    def start(self) -> None:
        """As the service manager does it: credentials in a folder, the socket as descriptor 3."""
        (self.folder / "database_url").write_text(f"{self.url}\n", encoding="utf-8")
        (self.folder / "gateway_admin_token").write_text(f"{ADMIN}\n", encoding="utf-8")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("KERNEL_RUNNER_", "DATABASE_"))}
        environment = {
            **kept,
            "CREDENTIALS_DIRECTORY": str(self.folder),
            "KERNEL_RUNNER_STATE_DIR": str(self.folder),
            "KERNEL_RUNNER_GATEWAY_REQUESTS_PER_MINUTE": "100000",
        }
        command = [sys.executable, "-c", COMMAND, str(WAITS_S), "gateway"]
        number = self.listening.fileno()
        handed = ["bash", "-c", f'export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@" 3<&{number}', "bash", *command]
        self.process = subprocess.Popen(
            handed, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[number]
        )

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


@dataclass
class Seen:
    """What the clients have met."""

    over: threading.Event = field(default_factory=threading.Event)
    answers: int = 0
    accepted: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def asked(port: int, path: str, sent: bytes | None = None, **headers: str) -> Answer:
    """One request as popcorn-cli sends it."""
    return ask(port, "GET" if sent is None else "POST", path, sent, {"X-Popcorn-Cli-Id": "ada-token", **headers})


def poll(port: int, submission_id: int, seen: Seen) -> None:
    """A waiting client reads its submission."""
    answer = asked(port, f"/user/submissions/{submission_id}")
    assert (answer.status, answer.json["id"]) == (200, submission_id), answer.text
    seen.answers += 1


def submit(port: int, number: int, seen: Seen) -> None:
    """A client submits; each file is another."""
    body, headers = multipart(f"# {number} {len(seen.accepted)} {time.monotonic_ns()}\n".encode())
    answer = asked(port, "/submission/identity/CPU/test", body, **headers)
    assert answer.status == 202, answer.text
    seen.accepted.append(answer.json["details"]["id"])


def again(act: Callable[[int, int, Seen], None], port: int, number: int, seen: Seen) -> None:
    """A client does something again and again, and ends at the first answer that is wrong."""
    while not seen.over.is_set():
        try:
            act(port, number, seen)
        except (OSError, AssertionError, LookupError) as error:
            seen.wrong.append(f"{act.__name__}: {error!r}")
            return
        seen.over.wait(EVERY_S)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Server, Bench, Postgres]]:
    """A gateway before a database server of its own."""
    with Postgres() as postgres:
        postgres.start()
        url = postgres.url("postgres")
        migrate(url, roles=True)
        bench = Bench(store=BoardStore(url, application_name="test"), url=url)
        bench.board()
        set_token(bench.store, "ada", "ada-token")
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        server = Server(folder=tmp_path, url=gateway_login(url), listening=listening)
        server.start()
        try:
            wait_until(lambda: ready(server.port), "the gateway is ready")
            yield server, bench, postgres
        finally:
            bench.store.close()
            if server.process is not None:
                server.process.kill()
                server.process.wait()
            listening.close()


def ready(port: int) -> bool:
    """Whether the gateway has its database."""
    with suppress(OSError):
        return asked(port, "/readyz").status == 200
    return False


@contextmanager
def clients(server: Server, bench: Bench) -> Iterator[Seen]:
    """Clients that poll and submit for as long as it lasts; afterwards none has met an error, and nothing is lost."""
    first = [bench.submit(user_id="ada", code=f"# first {number}\n".encode()) for number in range(POLLERS)]
    seen = Seen()
    with ThreadPoolExecutor(POLLERS + SUBMITTERS) as threads:
        for act, numbers in ((poll, first), (submit, range(SUBMITTERS))):
            for number in numbers:
                threads.submit(again, act, server.port, number, seen)
        try:
            more(seen)
            yield seen
            more(seen)
        finally:
            seen.over.set()
    assert seen.wrong == []
    with psycopg.connect(bench.url) as connection:
        stored = connection.execute(
            "SELECT s.id, count(j.id), count(DISTINCT s.code_id) FROM leaderboard.submission s"
            " LEFT JOIN runner.job j ON j.submission_id = s.id WHERE s.id >= %s GROUP BY s.id ORDER BY s.id",
            [first[0]],
        ).fetchall()
    # Each client sends a file once, so a submission that was stored twice would have the code of another.
    assert [row[0] for row in stored] == sorted(first + seen.accepted)
    assert {row[1] for row in stored} == {1}


def more(seen: Seen) -> None:
    """Wait until every client can have been answered again, or one has ended."""
    answers, accepted = seen.answers + 3 * POLLERS, len(seen.accepted) + 3 * SUBMITTERS
    wait_until(
        lambda: bool(seen.wrong) or (seen.answers >= answers and len(seen.accepted) >= accepted),
        "the clients are answered",
    )
    assert seen.wrong == []


def test_gateway_and_database_restart(site: tuple[Server, Bench, Postgres]) -> None:
    """A stream holds no restart up, and its client reads the result by polling; then both restart at the same time.

    The gateway is told to stop while its requests wait for a database that is away: they get their answers first.
    """
    server, bench, postgres = site
    with streamed(server.port, "test", "keep-alive") as stream:
        assert server.process is not None
        server.process.terminate()
        # It was ended, not cut off.
        assert stream.rest().endswith(b"\r\n0\r\n\r\n")
        assert server.process.wait(PATIENCE_S) == 0
    server.start()
    bench.store.complete(bench.claim(), result(Verdict.ACCEPTED, run_record("test", result={})))
    answer = asked(server.port, "/user/submissions/1")
    assert (answer.status, answer.json["done"]) == (200, True)
    with clients(server, bench) as seen:
        postgres.crash()
        time.sleep(AWAY_S)
        server.process.terminate()
        # Longer than uvicorn would wait by itself for a connection that is idle, shorter than a poll may take.
        time.sleep(AWAY_S)
        assert server.process.poll() is None
        postgres.start()
        assert server.process.wait(PATIENCE_S) == 0
        server.start()
        more(seen)
