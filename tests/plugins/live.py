"""A whole runner for tests: a fresh database, the real engine, and `kernel-runner serve` as a process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from runner.base.model import JobState
from runner.extras.boards.store import BoardStore
from runner.store.records import SubmissionView
from runner.task_format import extra_to_stored, load, to_stored
from runner.task_format.model import Harness, Task, Timing
from sandbox.host.engine import DockerEngine
from tests.plugins.postgres import daemon_login
from tests.support.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
#: What a daemon logs when it begins to claim.
_READY = '"event": "ready"'


@dataclass
class LiveRunner:
    """A daemon that serves a database; makes boards, submits, waits."""

    database_url: str
    state_dir: Path
    config_file: Path
    docker_host: str
    store: BoardStore
    #: What the daemon's environment has beside this process's.
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What the daemon has said so far."""
        path = self.state_dir / "daemon.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start the daemon and wait until it serves."""
        before = self.log.count(_READY)
        with (self.state_dir / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "runner.cli", "--config", str(self.config_file), "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                # A variable counts more than the configuration, and may name another engine.
                env={**os.environ, "DOCKER_HOST": self.docker_host, **self.environment},
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE_S
        while self.log.count(_READY) == before:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the daemon did not start:\n{self.log}")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the daemon and wait for its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(timeout=PATIENCE_S)
        self.process = None
        return code

    def containers(self) -> int:
        """How many containers the engine holds for the daemon; those of others are not counted."""
        with DockerEngine(self.docker_host, owner=f"test-host:{self.state_dir}") as engine:
            filters = {"label": f"kernel-runner.owner={engine.owner}"}
            return len(engine._call("list", lambda api: api.containers(all=True, quiet=True, filters=filters)))

    def board(
        self,
        folder: Path,
        *,
        name: str,
        timeout_s: int | None = None,
        timed_calls: int | None = None,
        gpus: tuple[str, ...] = ("CPU",),
    ) -> None:
        """Publish a task folder: time limits shortened where tests wait for them, calls where times are no subject."""
        loaded = load(folder)
        task = loaded.task
        if timed_calls is not None:
            if task.harness is Harness.BUILTIN:
                task = with_few_calls(task, timed_calls)
            elif "eval.py" in task.files:
                program = with_timed_calls(task.files["eval.py"], timed_calls)
                task = replace(task, files={**task.files, "eval.py": program})
        if timeout_s is not None:
            task = replace(task, test_timeout_s=timeout_s, benchmark_timeout_s=timeout_s, ranked_timeout_s=timeout_s)
        self.store.create_board(
            name=name,
            deadline=datetime.now(UTC) + timedelta(days=1),
            task=to_stored(task),
            description=loaded.description,
            gpus=gpus,
            templates=loaded.templates,
            extra=extra_to_stored(task.extra),
        )

    def submit(self, leaderboard: str, code: bytes, *, mode: str = "test", user_id: str = "tester") -> int:
        """Submit a file; its id."""
        return self.store.submit(
            leaderboard=leaderboard,
            user_id=user_id,
            file_name="submission.py",
            code=code,
            mode=mode,
            gpu_types=["CPU"],
            user_name=None,
        )

    def wait(
        self, submission_id: int, *, poll_s: float | None = None, patience_s: float = PATIENCE_S
    ) -> SubmissionView:
        """Wait until a submission is over; `poll_s` is the pause of `wait_until`."""

        def over() -> SubmissionView | None:
            view = self.store.submission(submission_id)
            return view if view.status.state in (JobState.DONE, JobState.CANCELLED) else None

        view = wait_until(
            over,
            f"submission {submission_id} is over",
            patience_s=patience_s,
            pause_s=poll_s,
            explain=lambda: f"the daemon said:\n{self.log}",
        )
        assert view is not None
        return view


def with_few_calls(task: Task, timed_calls: int) -> Task:
    """A task for the built-in harness, with so many timed calls of each benchmark."""
    return replace(task, extra=replace(task.extra, timing=Timing(min_runs=timed_calls, max_runs=timed_calls)))


def with_timed_calls(program: str, timed_calls: int) -> str:
    """The eval program of the fixtures, with so many calls of a kernel at most."""
    as_it_is = "MIN_REPEATS, MAX_REPEATS = 3, 100"
    assert as_it_is in program
    return program.replace(as_it_is, f"MIN_REPEATS, MAX_REPEATS = 3, {timed_calls}")


@contextmanager
def live_runner(
    database_url: str,
    gpu_types: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    /,
    **overrides: object,
) -> Iterator[LiveRunner]:
    """A runner on a migrated database, with these settings beside the usual ones; stopped and cleaned up afterwards.

    `gpu_types`: further ones, the text of each file by its name. `environment`: of the daemon, beside this process's.
    """
    # Not below pytest's own directory, which is closed to others, and the engine's containers read the stage.
    state_dir = Path(tempfile.mkdtemp(prefix="kernel-runner-test-", dir="/var/tmp"))
    state_dir.chmod(0o755)
    config_file = state_dir / "config.toml"
    eval_python = os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(ROOT / ".venv-eval" / "bin" / "python"))
    gpus_dir = state_dir / "gpus.d"
    gpus_dir.mkdir()
    # Little memory, so that a memory bomb is through before a time limit is.
    (gpus_dir / "CPU.toml").write_text('extends = "CPU"\nname = "CPU"\nmemory_gib = 1.5\nscratch_mib = 512\n')
    for name, text in (gpu_types or {}).items():
        (gpus_dir / f"{name}.toml").write_text(text)
    settings = {
        "gpus_dir": str(gpus_dir),
        # A login of its own: whatever the daemon does in any of these tests, it does without being the owner.
        "database_url": daemon_login(database_url),
        "docker_host": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"),
        "state_dir": str(state_dir),
        "eval_python": eval_python,
        "host_name": "test-host",
        "log_format": "json",
        # Torch is imported well within it, on a loaded machine too; one case never ends at import and waits for it.
        "build_timeout_s": 20,
        **overrides,
    }
    config_file.write_text(
        "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()), encoding="utf-8"
    )
    store = BoardStore(database_url, application_name="test")
    runner = LiveRunner(
        database_url=database_url,
        state_dir=state_dir,
        config_file=config_file,
        docker_host=str(settings["docker_host"]),
        store=store,
        environment=environment or {},
    )
    try:
        runner.start()
        yield runner
    finally:
        if runner.process is not None:
            # The polite way, because it removes the containers that wait for submissions; twice, not to wait for a run.
            runner.process.terminate()
            runner.process.terminate()
            try:
                runner.process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                runner.process.kill()
                runner.process.wait()
        store.close()
        shutil.rmtree(state_dir, ignore_errors=True)
