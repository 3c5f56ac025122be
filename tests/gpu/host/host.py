"""A whole host on this machine: PostgreSQL, engine and daemon of the development stack, with its devices or without."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg

from development.stack import Stack, state_directory
from runner.base.errors import KernelRunnerError
from runner.base.gpu_types import Registry
from runner.base.model import JobState
from runner.devices import detect_slots
from runner.extras.boards.store import BoardStore
from runner.extras.config import SiteConfig
from runner.store import migrate
from runner.store.records import JobView, SubmissionView
from runner.task_format import extra_to_stored, load, to_stored
from runner.task_format.model import TaskFolder
from tests.gpu.host.machine import SITE

ROOT: Final = Path(__file__).resolve().parents[3]
PROBLEMS: Final = ROOT / "tasks" / "problems"
#: Where there is no device, jobs of the plan run on these; the second one stands for a device that cannot rank.
CPU, EMULATED = "CPU", "CUDA_EMULATED"
_EMULATED_TYPE: Final = f'extends = "CPU"\nname = "{EMULATED}"\nemulate_cuda = true\ndetect = false\nmemory_gib = 4.0\n'
_TICK_S: Final = 0.05
#: In a process's cgroup.
_IN_CONTAINER: Final = re.compile(r"[0-9a-f]{64}")


class Unlike(Exception):
    """Something is not as the plan says."""


@dataclass
class Host:
    """A daemon that serves a database on this machine."""

    stack: Stack
    store: BoardStore
    url: str
    #: The GPU type that the plan is about.
    gpu_type: str
    #: Whether it is a real device.
    device: bool
    until_s: float
    #: Where processes of containers stood when a submission did not end.
    stacks: list[str] = field(default_factory=list)

    @property
    def log(self) -> str:
        """What the daemon has said so far."""
        path = self.stack.daemon_log
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def board(self, folder: Path, name: str, *, timeout_s: int | None = None) -> str:
        """Publish a task folder for this host's type; the name."""
        loaded: TaskFolder = load(folder)
        task = loaded.task
        if timeout_s is not None:
            task = replace(task, test_timeout_s=timeout_s, benchmark_timeout_s=timeout_s, ranked_timeout_s=timeout_s)
        self.store.create_board(
            name=name,
            deadline=datetime.now(UTC) + timedelta(days=1),
            task=to_stored(task),
            description=loaded.description,
            gpus=(self.gpu_type, *((EMULATED,) if not self.device else ())),
            templates=loaded.templates,
            extra=extra_to_stored(task.extra),
        )
        return name

    def submit(
        self, board: str, code: str, mode: str = "leaderboard", *, options: Mapping[str, object] | None = None
    ) -> int:
        """Submit a file; its id."""
        return self.store.submit(
            leaderboard=board,
            user_id="plan",
            file_name="submission.py",
            code=code.encode(),
            mode=mode,
            gpu_types=[self.gpu_type],
            user_name=None,
            options=options,
        )

    def wait(self, number: int, *, patience_s: float = 60.0) -> SubmissionView:
        """Wait until a submission is over.

        Raises:
            Unlike: it is not within its time, or within the plan's.
        """
        until_s = min(time.monotonic() + patience_s, self.until_s)
        while time.monotonic() < until_s:
            view = self.store.submission(number)
            if view.status.state in {JobState.DONE, JobState.CANCELLED}:
                return view
            time.sleep(_TICK_S)
        self.keep_stacks()
        # The slot is needed for what comes next.
        self.store.cancel(number)
        raise Unlike(f"submission {number} is not over: {[(job.state, job.progress) for job in view.jobs]}")

    def keep_stacks(self) -> None:
        """Write down where every process of a container stands; the first time only."""
        if self.stacks:
            return
        inside = [
            path.name
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and _IN_CONTAINER.search(_text_of(path / "cgroup"))
        ]
        for pid in inside:
            command = [str(SITE / "bin" / "py-spy"), "dump", "--nonblocking", "--pid", pid]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
            self.stacks.append(f"{_text_of(Path('/proc', pid, 'wchan'))} {done.stdout}{done.stderr}")

    def evaluate(self, board: str, code: str, mode: str = "leaderboard", **options: Any) -> SubmissionView:  # noqa: ANN401 options of `wait`
        """Submit and wait."""
        return self.wait(self.submit(board, code, mode), **options)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    def start_daemon(self) -> float:
        """Start the daemon and wait until it serves; seconds.

        Raises:
            Unlike: it does not serve.
        """
        began, began_s = datetime.now(UTC), time.monotonic()
        self.stack.start_daemon()
        try:
            if not self.stack.daemon_serves(since=began):
                raise Unlike(f"the daemon does not serve: {self.log[-2000:]}")
        except KernelRunnerError as error:
            raise Unlike(f"{error}: {self.log[-2000:]}") from error
        return time.monotonic() - began_s

    def kill_daemon(self) -> None:
        """Kill the daemon, as a machine's kernel does that is out of memory."""
        pid = self.stack.start_daemon()
        os.kill(pid, signal.SIGKILL)
        while self.stack.daemon_runs():
            time.sleep(_TICK_S)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def job_of(view: SubmissionView) -> JobView:
    """The public job."""
    return next(job for job in view.jobs if not job.secret)


@contextmanager
def bring_up(*, python: str, until_s: float) -> Iterator[Host]:
    """PostgreSQL, engine, schema and daemon; ended afterwards."""
    os.environ["KERNEL_RUNNER_EVAL_PYTHON"] = python
    stack = Stack(state_directory("gpu-host"))
    stack.stop_all()
    try:
        url = stack.start_postgres()
        engine = stack.start_engine()
        migrate(url, roles=True)
        stack.write_config(database_url=url, engine=engine)
        types = _types(stack)
        device = next((name for name in types if name != CPU), None)
        _configure(stack, device)
        store = BoardStore(url, application_name="kernel-runner plan")
        host = Host(
            stack=stack, store=store, url=url, gpu_type=device or CPU, device=device is not None, until_s=until_s
        )
        try:
            host.start_daemon()
            yield host
        finally:
            store.close()
    finally:
        stack.stop_all()


def _types(stack: Stack) -> Sequence[str]:
    """The GPU types that this machine's devices are of."""
    config = SiteConfig.load(stack.config_file, environ={})
    return [slot.gpu_type for slot in detect_slots(Registry.load(config.gpus_dir), config)]


def _configure(stack: Stack, device: str | None) -> None:
    """Slots where there is no device: one of each kind."""
    types = stack.directory / "gpus.d"
    types.mkdir(exist_ok=True)
    lines = [f"gpus_dir = {json.dumps(str(types))}", "build_timeout_s = 240"]
    if device is None:
        (types / f"{EMULATED}.toml").write_text(_EMULATED_TYPE, encoding="utf-8")
        lines.append(f'slots = [{{ gpu_type = "{CPU}", devices = [] }}, {{ gpu_type = "{EMULATED}", devices = [] }}]')
    with stack.config_file.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
