"""One site for all checks: a daemon with real containers, a gateway as a process, and what each client submitted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from runner.extras.gateway.identity import digest
from tests.fakes.machine import Machine
from tests.fakes.ncu import bring
from tests.fakes.recordings import nvidia
from tests.integration.extras.gateway.conftest import board_login, gateway_login
from tests.integration.extras.gateway.contract.clients import Kernelboard, Outcome, Popcorn, Wire
from tests.plugins.live import ROOT, LiveRunner, live_runner
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, wait_until

ADMIN: Final = "an-admin-token-of-the-suite"
#: Must be in no answer.
SEED: Final = 7_319_004_455
#: How a website names its user.
WEB_ID: Final = "0123456789abcdef0123456789abcdef"
SOLUTIONS: Final = ROOT / "tasks" / "problems" / "vectoradd" / "solutions"
#: Far more than any submission takes on a loaded machine; on the other board one ends by it.
LIMIT_S: Final = 90
SHORT_S: Final = 6
#: So few that no times are refused as noise.
TIMED_CALLS: Final = 10
DEVICE: Final = nvidia("NVIDIA B200", 0x2901, 180, (10, 0))


def _file(name: str) -> bytes:
    return (SOLUTIONS / name).read_bytes()


@dataclass(frozen=True, kw_only=True)
class Run:
    """One submission of one client."""

    client: str
    code: bytes
    mode: str
    board: str = "vectoradd"
    gpu: str = "CPU"
    #: Of `--profile` of newer versions.
    options: Mapping[str, str] = field(default_factory=dict)
    #: What it should come to: exit code, job status, and whether each public row passed.
    exit_code: int = 0
    status: str = "succeeded"
    passed: bool = True


RIGHT: Final = _file("correct/torch_add.py")
WRONG: Final = _file("wrong/last_element.py")
SLOW: Final = _file("faults/slow.py")
CHEAT: Final = _file("faults/cheat.py")
#: What popcorn-cli sends as a form for `--profile`.
CAPTURE: Final = {
    "benchmark_index": "1",
    "ncu_kernel_name": "regex:^void reduce",
    "ncu_kernel_name_base": "demangled",
    "ncu_launch_count": "3",
}
#: A GPU type of a device that NVML alone knows of: torch finds an emulated one, and programs that a submission brings.
PROFILED_TYPE: Final = """extends = "B200"
name = "B200"

[environment]
KR_EMULATE_CUDA = "1073741824"
PATH = "/work/bin:/usr/local/bin:/usr/bin:/bin"
"""
#: popcorn-cli by version; `next` is what has been merged since.
VERSIONS: Final = {
    "1.1.4": (1, 1, 4),
    "1.1.30": (1, 1, 30),
    "1.3.15": (1, 3, 15),
    "1.3.16": (1, 3, 16),
    "1.3.23": (1, 3, 23),
    "next": (1, 4, 0),
}
RUNS: Final = {
    "1.1.4 test": Run(client="1.1.4", code=RIGHT, mode="test"),
    "1.1.30 benchmark": Run(client="1.1.30", code=RIGHT, mode="benchmark"),
    "1.3.15 leaderboard": Run(client="1.3.15", code=RIGHT, mode="leaderboard"),
    "1.3.15 wrong": Run(client="1.3.15", code=WRONG, mode="test", passed=False),
    "1.3.16 test": Run(client="1.3.16", code=RIGHT, mode="test"),
    "1.3.23 leaderboard": Run(client="1.3.23", code=RIGHT, mode="leaderboard"),
    "1.3.23 benchmark": Run(client="1.3.23", code=RIGHT, mode="benchmark"),
    "1.3.23 profile": Run(client="1.3.23", code=RIGHT, mode="profile"),
    "1.3.23 wrong ranked": Run(
        client="1.3.23", code=WRONG, mode="leaderboard", exit_code=1, status="failed", passed=False
    ),
    # KernelBot's rule: an unranked submission has succeeded when it was evaluated, whatever came of it.
    "1.3.23 slow": Run(client="1.3.23", code=SLOW, mode="test", board="short", passed=False),
    "1.3.23 cheat": Run(client="1.3.23", code=CHEAT, mode="leaderboard", exit_code=1, status="hacked", passed=False),
    "next leaderboard": Run(client="next", code=RIGHT, mode="LEADERBOARD", board="Capitals", gpu="cpu"),
    # The submission brings the stand-in of Nsight Compute along: no device and no profiler is here.
    "next profiled": Run(
        client="next", code=bring(RIGHT), mode="profile", board="profiled", gpu="B200", options=CAPTURE
    ),
    "next wrong": Run(client="next", code=WRONG, mode="test", exit_code=1, passed=False),
    "kernelboard test": Run(client="kernelboard", code=RIGHT, mode="test"),
    "kernelboard leaderboard": Run(client="kernelboard", code=RIGHT, mode="leaderboard"),
    "kernelboard wrong": Run(client="kernelboard", code=WRONG, mode="test", passed=False),
}
STREAMED: Final = tuple(
    name for name, run in RUNS.items() if run.mode == "profile" or run.client in ("1.1.4", "1.1.30", "1.3.15")
)


@dataclass
class Site:
    """What runs, and what the clients have seen."""

    live: LiveRunner
    port: int
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    #: What kernelboard was answered.
    accepted: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: The last of each submission, read by its owner once all are over.
    details: dict[str, dict[str, Any]] = field(default_factory=dict)

    def popcorn(self, client: str = "1.3.23", user: str | None = None) -> Popcorn:
        """popcorn-cli of a version, logged in as its user."""
        return Popcorn(
            port=self.port, cli_id=f"{user or user_of(client)}-token", version=VERSIONS[client], strict=client == "next"
        )

    def read(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Rows of the database as kernelboard reads them: by a login of its role."""
        with psycopg.connect(board_login(self.live.database_url), row_factory=dict_row) as connection:
            return connection.execute(statement.encode(), values or None).fetchall()

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Rows of the database as its owner reads them."""
        with psycopg.connect(self.live.database_url, row_factory=dict_row) as connection:
            return connection.execute(statement.encode(), values or None).fetchall()

    def number(self, name: str) -> int:
        """The id of a submission."""
        found: int = self.details[name]["id"]
        return found

    def run(self, name: str) -> None:
        """Submit as the client does, and wait for what it sees."""
        run = RUNS[name]
        place = {"board": run.board, "gpu": run.gpu, "mode": run.mode, "name": file_of(name)}
        if run.client == "kernelboard":
            self.accepted[name] = Kernelboard(port=self.port, web_auth_id=WEB_ID).submit(run.code, **place)
        else:
            self.outcomes[name] = self.popcorn(run.client).submit(run.code, **place, options=run.options)


def user_of(client: str) -> str:
    """The user's id of a client."""
    return f"u-{client}"


def file_of(name: str) -> str:
    """The file's name of a submission."""
    return f"{name.replace(' ', '_')}.py"


@contextmanager
def site(database_url: str) -> Iterator[Site]:
    """Daemon and gateway, with every submission of `RUNS` over."""
    with (
        TemporaryDirectory() as folder,
        live_runner(
            database_url,
            {"B200": PROFILED_TYPE},
            {"PYTHONPATH": os.pathsep.join((str(Machine(Path(folder), DEVICE).folder), str(ROOT)))},
            cpu_slots=1,
            warm_containers=1,
        ) as live,
        gateway_of(live) as port,
    ):
        problems = ROOT / "tasks" / "problems"
        for name, timeout_s in (("vectoradd", LIMIT_S), ("short", SHORT_S), ("Capitals", LIMIT_S)):
            live.board(problems / "vectoradd", name=name, timeout_s=timeout_s, timed_calls=TIMED_CALLS)
        live.board(problems / "vectoradd", name="profiled", timeout_s=LIMIT_S, gpus=("B200",))
        for name in ("closed", "over"):
            live.board(problems / "identity", name=name, timeout_s=LIMIT_S)
        made = Site(live=live, port=port)
        with psycopg.connect(live.database_url, autocommit=True) as connection:
            connection.execute("UPDATE leaderboard.leaderboard SET secret_seed = %s", (SEED,))
            connection.execute("UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = 'closed'")
            connection.execute("UPDATE leaderboard.leaderboard SET deadline = now() WHERE name = 'over'")
            user = "INSERT INTO leaderboard.user_info (id, user_name, cli_id, cli_valid) VALUES (%s, %s, %s, true)"
            for client in VERSIONS:
                token = digest(f"{user_of(client)}-token")
                connection.execute(user, (user_of(client), f"User {client}", token))
            web = "INSERT INTO leaderboard.user_info (id, user_name, web_auth_id) VALUES ('4711', 'Web User', %s)"
            connection.execute(web, (WEB_ID,))
        threads = [threading.Thread(target=made.run, args=(name,), daemon=True) for name in RUNS]
        for thread in threads:
            thread.start()
        left = "SELECT id FROM leaderboard.submission WHERE NOT coalesce(done, false)"
        wait_until(
            lambda: not (any(thread.is_alive() for thread in threads) or made.rows(left)),
            "all submissions end",
            patience_s=2 * PATIENCE_S,
            explain=lambda: live.log,
        )
        for row in made.rows("SELECT id, file_name, user_id FROM leaderboard.submission"):
            name = next(name for name in RUNS if file_of(name) == row["file_name"])
            by_web = row["user_id"] == "4711"
            headers = {"X-Web-Auth-Id": WEB_ID} if by_web else {"X-Popcorn-Cli-Id": f"{row['user_id']}-token"}
            _, _, body = Wire(port=port).ask("GET", f"/user/submissions/{row['id']}", None, headers)
            made.details[name] = json.loads(body)
        yield made


@contextmanager
def gateway_of(live: LiveRunner, port: int | None = None) -> Iterator[int]:
    """`kernel-runner gateway` as a process, with a login of its role; its port."""
    port = port or free_port()
    folder = Path(live.state_dir) / "gateway"
    folder.mkdir(exist_ok=True)
    (folder / "admin_token").write_text(f"{ADMIN}\n", encoding="ascii")
    settings = {
        "database_url": gateway_login(live.database_url),
        "state_dir": str(folder),
        "gateway_listen": f"127.0.0.1:{port}",
        "gateway_admin_token_file": str(folder / "admin_token"),
        # The polls here are faster than popcorn-cli's.
        "gateway_requests_per_minute": 100_000,
    }
    config = folder / "config.toml"
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()), encoding="utf-8")
    log = folder / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "runner.cli", "--config", str(config), "gateway"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
        )
    try:
        wait_until(lambda: process.poll() is not None or _listens(port), "the gateway listens", explain=log.read_text)
        assert process.poll() is None, log.read_text()
        yield port
    finally:
        process.terminate()
        code = process.wait(PATIENCE_S)
    assert code == 0, log.read_text()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
