"""One site for all checks: a daemon with real containers, a gateway as a process, and what each client submitted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from tests.fakes.machine import Machine
from tests.fakes.ncu import bring
from tests.fakes.recordings import nvidia
from tests.integration.extras.gateway.conftest import ADMIN, add_user, ask, board_login, gateway_login
from tests.integration.extras.gateway.contract.clients import Generation, Outcome, Popcorn
from tests.plugins.live import ROOT, LiveRunner, live_runner
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, wait_until

TOKEN: Final = "ada-token"
PROBLEMS: Final = ROOT / "tasks" / "problems"
SOLUTIONS: Final = PROBLEMS / "vectoradd" / "solutions"
#: Far more than any submission takes on a loaded machine; on the other board one ends by it.
LIMIT_S: Final = 300
SHORT_S: Final = 6
#: So few that no times are refused as noise.
TIMED_CALLS: Final = 10
DEVICE: Final = nvidia("NVIDIA B200", 0x2901, 180, (10, 0))
RIGHT: Final = (SOLUTIONS / "correct/torch_add.py").read_bytes()
WRONG: Final = (SOLUTIONS / "wrong/last_element.py").read_bytes()
SLOW: Final = (SOLUTIONS / "faults/slow.py").read_bytes()
CHEAT: Final = (SOLUTIONS / "faults/cheat.py").read_bytes()
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


@dataclass(frozen=True, kw_only=True)
class Run:
    """One submission of one client."""

    client: Generation
    mode: str
    code: bytes = RIGHT
    board: str = "vectoradd"
    gpu: str = "CPU"
    options: Mapping[str, str] | None = None
    #: What it should come to: exit code, job status, and whether each public row passed.
    exit_code: int = 0
    status: str = "succeeded"
    passed: bool = True


STREAMS, POLLS, STRICT = Generation
RUNS: Final = {
    "streams_test": Run(client=STREAMS, mode="test"),
    "streams_leaderboard": Run(client=STREAMS, mode="leaderboard"),
    "streams_wrong": Run(client=STREAMS, mode="test", code=WRONG, passed=False),
    "polls_benchmark": Run(client=POLLS, mode="benchmark"),
    "polls_leaderboard": Run(client=POLLS, mode="leaderboard"),
    "polls_profile": Run(client=POLLS, mode="profile"),
    "polls_wrong": Run(client=POLLS, mode="leaderboard", code=WRONG, exit_code=1, status="failed", passed=False),
    # KernelBot's rule: an unranked submission has succeeded when it was evaluated, whatever came of it.
    "polls_slow": Run(client=POLLS, mode="test", code=SLOW, board="short", passed=False),
    "polls_cheat": Run(client=POLLS, mode="leaderboard", code=CHEAT, exit_code=1, status="hacked", passed=False),
    "strict_leaderboard": Run(client=STRICT, mode="LEADERBOARD", board="Capitals", gpu="cpu"),
    # The submission brings the stand-in of Nsight Compute along: no device and no profiler is here.
    "strict_profile": Run(
        client=STRICT, mode="profile", code=bring(RIGHT), board="profiled", gpu="B200", options=CAPTURE
    ),
    "strict_wrong": Run(client=STRICT, mode="test", code=WRONG, exit_code=1, passed=False),
}
STREAMED: Final = tuple(name for name, run in RUNS.items() if run.mode == "profile" or run.client is STREAMS)


@dataclass
class Site:
    """What runs, and what the clients have seen."""

    live: LiveRunner
    port: int
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    #: The last of each submission, read by its owner once all are over.
    details: dict[str, dict[str, Any]] = field(default_factory=dict)

    def read(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Rows of the database as kernelboard reads them: by a login of its role."""
        with psycopg.connect(board_login(self.live.database_url), row_factory=dict_row) as connection:
            return connection.execute(statement.encode(), values or None).fetchall()

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """Rows of the database as its owner reads them."""
        with psycopg.connect(self.live.database_url, row_factory=dict_row) as connection:
            return connection.execute(statement.encode()).fetchall()

    def run(self, name: str) -> None:
        """Submit as the client does, and wait for what it sees."""
        run = RUNS[name]
        client = Popcorn(port=self.port, cli_id=TOKEN, generation=run.client)
        self.outcomes[name] = client.submit(
            run.code, board=run.board, gpu=run.gpu, mode=run.mode, name=f"{name}.py", options=run.options
        )


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
        for name, timeout_s in (("vectoradd", LIMIT_S), ("short", SHORT_S), ("Capitals", LIMIT_S)):
            live.board(PROBLEMS / "vectoradd", name=name, timeout_s=timeout_s, timed_calls=TIMED_CALLS)
        live.board(PROBLEMS / "vectoradd", name="profiled", timeout_s=LIMIT_S, gpus=("B200",))
        made = Site(live=live, port=port)
        add_user(live.database_url, "ada", TOKEN)
        with ThreadPoolExecutor(len(RUNS)) as threads:
            running = [threads.submit(made.run, name) for name in RUNS]
            left = "SELECT id FROM leaderboard.submission WHERE NOT coalesce(done, false)"
            wait_until(
                lambda: all(each.done() for each in running) and not made.rows(left),
                "all submissions end",
                patience_s=2 * PATIENCE_S,
                explain=lambda: live.log,
            )
        for row in made.rows("SELECT id, file_name FROM leaderboard.submission"):
            answer = ask(port, "GET", f"/user/submissions/{row['id']}", None, {"X-Popcorn-Cli-Id": TOKEN})
            made.details[row["file_name"].removesuffix(".py")] = answer.json
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
