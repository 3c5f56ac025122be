"""A real daemon whose every dependency is the test's own: PostgreSQL, engine, two disks, name service, clock.

It runs in a mount namespace with its own /etc/hosts and /etc/resolv.conf. Its log and configuration lie outside the
disk that is filled. Needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

import psycopg

from runner.model import JobState
from runner.store import Store, SubmissionView, migrate
from runner.task_format import extra_to_stored, load, to_stored
from tests.chaos.dockerd import Dockerd
from tests.chaos.server import Server
from tests.plugins.scrape import get
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
#: What the daemon's database is called; only its /etc/hosts knows the name.
NAME: Final = "db.kernel-runner.test"
FLOOR_GIB: Final = 0.03
DISK_MIB: Final = 160


class Host:
    """A host with everything it depends on. Use as a context manager; the daemon serves when it is entered."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            self._make(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make(self, stack: ExitStack) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kernel-runner-outage-", dir="/var/tmp"))
        self.directory.chmod(0o755)
        stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        port = free_port()
        self.server = stack.enter_context(Server(port=port))
        self.server.start()
        migrate(self.server.url("postgres"))
        self.dockerd = Dockerd()
        self.state_dir = self._disk(stack, self.directory / "state")
        self.engine_disk = self._disk(stack, self.dockerd.directory / "data")
        stack.enter_context(self.dockerd)
        self._hosts = self.directory / "hosts"
        self._resolv = self.directory / "resolv.conf"
        # No server answers there: a name that /etc/hosts does not have is refused at once.
        self._resolv.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", encoding="ascii")
        self.know_the_name()
        self._shift = self.directory / "shift"
        self.set_clock(0)
        self._log_file = self.directory / "daemon.log"
        self._config(port)
        self.store = Store(self.server.url("postgres"), application_name="test")
        stack.callback(self.store.close)
        self.process = self._start(stack)
        self.wait_ready(PATIENCE_S * 2)

    def _disk(self, stack: ExitStack, path: Path) -> Path:
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(path)], check=True)
        stack.callback(subprocess.run, ["umount", "-l", str(path)], check=False, capture_output=True)
        return path

    def _config(self, port: int) -> None:
        eval_python = os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(ROOT / ".venv-eval" / "bin" / "python"))
        gpus_dir = self.directory / "gpus.d"
        gpus_dir.mkdir()
        (gpus_dir / "CPU.toml").write_text('extends = "CPU"\nname = "CPU"\nmemory_gib = 1.5\nscratch_mib = 512\n')
        settings: dict[str, Any] = {
            "gpus_dir": str(gpus_dir),
            "database_url": f"postgresql://postgres@{NAME}:{port}/postgres",
            "docker_host": self.dockerd.url,
            "state_dir": str(self.state_dir),
            "eval_python": eval_python,
            "host_name": "outage-host",
            "log_format": "json",
            "poll_s": 0.5,
            "cpu_slots": 1,
            # What waits would take the processor from everything else here.
            "warm_containers": 0,
            "min_free_gib": FLOOR_GIB,
            "http_listen": "unix:http.sock",
        }
        self._config_file = self.directory / "config.toml"
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        self._config_file.write_text(lines, encoding="utf-8")

    def _start(self, stack: ExitStack) -> subprocess.Popen[bytes]:
        library = self.directory / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
        bound = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && shift 2 && exec "$@"'
        serve = [sys.executable, "-m", "runner.cli", "--config", str(self._config_file), "serve"]
        with self._log_file.open("ab") as log:
            process = subprocess.Popen(
                [
                    *("unshare", "--mount", "--propagation", "slave"),
                    *("sh", "-ec", bound, "sh", str(self._hosts), str(self._resolv)),
                    *("env", f"LD_PRELOAD={library}", f"FAKE_CLOCK={self._shift}", *serve),
                ],
                # They would come before the configuration's.
                env={key: value for key, value in os.environ.items() if key not in ("DOCKER_HOST", "DATABASE_URL")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        stack.callback(_end, process)
        return process

    # -- what happens to it

    def know_the_name(self, *, known: bool = True) -> None:
        """Let its /etc/hosts have the database's name, or not."""
        # In place: the file is mounted.
        self._hosts.write_text(f"127.0.0.1 localhost{f' {NAME}' if known else ''}\n", encoding="ascii")

    def cut_connections(self) -> None:
        """End every connection of the daemon, as a firewall would that forgets them."""
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'kernel-runner%'"
            )

    def set_clock(self, by_s: int) -> None:
        """Let the daemon's clock differ from the machine's by so much."""
        with self._shift.open("r+b" if self._shift.exists() else "wb") as file:
            file.write(struct.pack("@l", by_s))

    def fill(self, disk: Path) -> None:
        """Leave less than the floor on a disk."""
        found = os.statvfs(disk)
        with (disk / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - (4 << 20))

    def empty(self, disk: Path) -> None:
        """Make room again."""
        (disk / "ballast").unlink()

    # -- its queue

    def board(self) -> None:
        """Publish a leaderboard."""
        loaded = load(ROOT / "tasks" / "problems" / "vectoradd")
        self.store.create_board(
            name="vectoradd",
            deadline=datetime.now(UTC) + timedelta(days=1),
            task=to_stored(loaded.task),
            description=loaded.description,
            gpus=("CPU",),
            templates=loaded.templates,
            extra=extra_to_stored(loaded.task.extra),
        )

    def evaluate(self, code: bytes) -> SubmissionView:
        """Submit a file and wait for what comes of it."""
        # The test's own connection was cut, too.
        self.store.close()
        submission = self.store.submit(
            leaderboard="vectoradd",
            user_id="tester",
            file_name="submission.py",
            code=code,
            mode="test",
            gpu_types=["CPU"],
            user_name=None,
        )
        over = (JobState.DONE, JobState.CANCELLED)
        self.wait(lambda: self.store.submission(submission).state in over, "the submission is evaluated")
        return self.store.submission(submission)

    # -- what it says

    def readyz(self) -> tuple[int, dict[str, Any]]:
        """What it answers."""
        status, said = get(f"unix:{self.state_dir / 'http.sock'}", "/readyz")
        return status, json.loads(said)

    def wait_reason(self, reason: str, details: str) -> None:
        """Wait until it is not ready for this reason, and says this of it."""

        def so() -> bool:
            status, said = self.readyz()
            return status == 503 and said["reason"] == reason and details in said.get("details", "")

        self.wait(so, f"not ready: {reason}, {details}")

    def wait_ready(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until it would claim."""

        def ready() -> bool:
            try:
                return self.readyz()[0] == 200
            except OSError:
                # It does not listen yet.
                return False

        self.wait(ready, "ready", patience_s)

    def lines(self) -> Sequence[dict[str, Any]]:
        """Its log so far."""
        found = []
        for line in self._log_file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": line})
        return found

    def wait(self, condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + patience_s
        while not condition():
            log = self._log_file.read_text(encoding="utf-8", errors="replace")[-6000:]
            assert self.process.poll() is None, f"the daemon ended:\n{log}"
            assert time.monotonic() < deadline, f"never happened: {what}; the daemon said:\n{log}"
            time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The polite way, twice, not to wait for a run; then the other one."""
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
