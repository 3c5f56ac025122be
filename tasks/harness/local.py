"""Judge and workers as processes of this machine, without a container: for task authors and for tests.

It takes init's part: starts them, passes the request on, collects frames, tells the judge when a worker has
ended, kills what is left. All run as the caller's user, so a submission could interfere with the judge. Results made
this way are for trying out, not for ranking.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self

from sandbox.protocol import Decoder, StepResult, encode, from_b64

from .emulate import VARIABLE as EMULATE
from .judge.request import JudgeRequest

_ROOT = Path(__file__).resolve().parents[2]
_START = "import sys; sys.path.insert(0, sys.argv[1]); from tasks.harness.{0}.main import main; sys.exit(main())"
_CHUNK_BYTES = 1 << 16


class JudgeFailed(RuntimeError):
    """The judge broke; the message is what it wrote to stderr."""


@dataclass(frozen=True, kw_only=True)
class LocalReport:
    """Everything the judge reported."""

    steps: tuple[StepResult, ...]
    #: name, media type, data
    artifacts: tuple[tuple[str, str, bytes], ...]
    progress: tuple[tuple[str, int, int], ...]


class Started(Protocol):
    """A process that `start` has started: the part of subprocess.Popen that is needed."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end: the exit code, or minus the number of the signal that ended it."""


class Start(Protocol):
    """Starts a judge or a worker, in a session of its own; descriptors as subprocess.Popen takes them."""

    def __call__(
        self, role: str, *, cwd: Path, env: Mapping[str, str], stdin: int, stdout: int, stderr: int, keep: Sequence[int]
    ) -> Started:
        """`role`: "judge" or "worker". `keep`: descriptors that it inherits under the same numbers."""


def with_interpreter(python: str = sys.executable) -> Start:
    """Start each process with an interpreter of its own."""

    def start(
        role: str, *, cwd: Path, env: Mapping[str, str], stdin: int, stdout: int, stderr: int, keep: Sequence[int]
    ) -> Started:
        argv = [python, "-P", "-c", _START.format(role), str(_ROOT)]
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(keep),
            # Processes that it starts are killed with it.
            start_new_session=True,
        )

    return start


class Pair:
    """A judge and a worker per rank that have been started and wait. Close it, or use it as a context manager."""

    def __init__(
        self, *, ranks: int = 1, start: Start | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        start = start or with_interpreter()
        base = {
            key: value for key, value in os.environ.items() if key == EMULATE or not key.startswith(("POPCORN_", "KR_"))
        }
        base |= environment or {}
        self._directory = tempfile.TemporaryDirectory(prefix="kernel-runner-")
        places = {name: Path(self._directory.name) / name for name in ("judge", "worker")}
        for place in places.values():
            place.mkdir(mode=0o700)
        lines = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(ranks)]
        ranks_line, judge_ranks = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self.workers = [
            start(
                "worker",
                cwd=places["worker"],
                env=base | {"KR_JUDGE_FD": str(worker_end.fileno()), "HOME": str(places["worker"])},
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=err_write,
                keep=(worker_end.fileno(),),
            )
            for _, worker_end in lines
        ]
        judge_end = lines[0][0]
        descriptors = {
            "KR_WORKER_FD": judge_end.fileno(),
            "KR_RANKS_FD": judge_ranks.fileno(),
            "KR_WORKER_STDOUT_FD": out_read,
            "KR_WORKER_STDERR_FD": err_read,
        }
        self._judge = start(
            "judge",
            cwd=places["judge"],
            env=base | {key: str(descriptor) for key, descriptor in descriptors.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            keep=tuple(descriptors.values()),
        )
        for further, _ in lines[1:]:
            socket.send_fds(ranks_line, [b"r"], [further.fileno()])
        for end in (*(end for line in lines for end in line), ranks_line, judge_ranks):
            end.close()
        for descriptor in (out_read, out_write, err_read, err_write):
            os.close(descriptor)
        self._stderr = bytearray()
        self._write_lock = threading.Lock()
        self._ended = threading.Lock()
        self._threads = [
            threading.Thread(target=self._read_stderr, name="judge stderr", daemon=True),
            *(
                threading.Thread(target=self._await_worker, args=(rank,), name=f"worker {rank} exit", daemon=True)
                for rank in range(ranks)
            ),
        ]

    def run(self, request: JudgeRequest, *, on_frame: Callable[[dict[str, Any]], None] | None = None) -> LocalReport:
        """Hand over the request and wait for the judge's last frame. May be called once.

        Raises:
            JudgeFailed: the judge ended with anything but 0.
        """
        self._to_judge({"type": "request", "payload": request.to_payload()})
        for thread in self._threads:
            thread.start()
        steps, artifacts, progress = [], [], []
        decoder = Decoder()
        while data := self._judge_stdout():
            for message in decoder.feed(data):
                if on_frame is not None:
                    on_frame(message)
                match message["type"]:
                    case "step":
                        steps.append(StepResult.from_message(message))
                    case "artifact":
                        artifacts.append((message["name"], message["media_type"], from_b64(message["data_b64"])))
                    case "progress":
                        progress.append((message["phase"], message["done"], message["total"]))
        code = self._judge.wait()
        self._threads[0].join()
        if code != 0:
            raise JudgeFailed(f"the judge ended with {code}:\n{self._stderr.decode(errors='replace')[-8000:]}")
        return LocalReport(steps=tuple(steps), artifacts=tuple(artifacts), progress=tuple(progress))

    @property
    def judge_stderr(self) -> str:
        """The stderr of the judge and of the task's own code."""
        return self._stderr.decode(errors="replace")

    def close(self) -> None:
        """Kill all processes and their sessions, and remove their directories."""
        self._kill_workers()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._judge.pid, signal.SIGKILL)
        self._judge.wait()
        for worker in self.workers:
            worker.wait()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=5)
        for stream in (self._judge.stdin, self._judge.stdout, self._judge.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _judge_stdout(self) -> bytes:
        return os.read(self._judge.stdout.fileno(), _CHUNK_BYTES) if self._judge.stdout is not None else b""

    def _to_judge(self, message: Mapping[str, Any]) -> None:
        with self._write_lock:
            try:
                if self._judge.stdin is not None:
                    self._judge.stdin.write(encode(message))
                    self._judge.stdin.flush()
            except (BrokenPipeError, ValueError):
                # The judge is gone; its exit code says more than this.
                return

    def _read_stderr(self) -> None:
        while self._judge.stderr is not None and (data := os.read(self._judge.stderr.fileno(), _CHUNK_BYTES)):
            self._stderr += data

    def _await_worker(self, rank: int) -> None:
        code = self.workers[rank].wait()
        # All workers end with the first one. Only the first says why.
        if not self._ended.acquire(blocking=False):
            return
        self._kill_workers()
        ending = {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None}
        self._to_judge({"type": "worker_exit", "rank": rank, **ending})

    def _kill_workers(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)


def evaluate(
    request: JudgeRequest,
    *,
    on_frame: Callable[[dict[str, Any]], None] | None = None,
    start: Start | None = None,
) -> LocalReport:
    """Start what a request needs, judge it, clean up. `start`: None gives every process a new interpreter.

    Raises:
        JudgeFailed: the judge broke.
    """
    with Pair(ranks=request.ranks or 1, start=start) as pair:
        return pair.run(request, on_frame=on_frame)
