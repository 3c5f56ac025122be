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

from sandbox.protocol import AUTHOR_PAGE_BYTES, AUTHOR_PAGE_FD, Artifact, AuthorExit, Decoder, StepResult, encode

from .emulate import VARIABLE as EMULATE
from .judge.report import CaseReport, result_lines
from .judge.request import JudgeRequest
from .roles import MODULES

_ROOT = Path(__file__).resolve().parents[2]
_START = "import sys; sys.path.insert(0, sys.argv[1]); from {} import main; sys.exit(main())"
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
    #: What of the author's ended the judge's process, if anything did. What it reported before that is here, too.
    author_exit: AuthorExit | None = None


def lines_of(*steps: StepResult, count: int | None = None) -> dict[str, str]:
    """KernelBot's result lines of a mode that the judge ran; several profiles, of one case each, become one mode.

    `count`: of all cases, where some steps may be missing; None: what the first step announces.
    """
    judged = [step.judged for step in steps if step.judged is not None]
    return result_lines(
        steps[0].name if steps else "",
        [CaseReport.from_message(case) for each in judged for case in each.cases],
        count=judged[0].announced if count is None and judged else count,
        passed=bool(judged) and all(each.verdict == "accepted" for each in judged),
    )


class Started(Protocol):
    """A process that `start` has started: the part of subprocess.Popen that is needed."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end: the exit code, or minus the number of the signal that ended it."""


class Start(Protocol):
    """Starts a process of a role, in a session of its own; descriptors as subprocess.Popen takes them."""

    def __call__(
        self, role: str, *, cwd: Path, env: Mapping[str, str], stdin: int, stdout: int, stderr: int, keep: Sequence[int]
    ) -> Started:
        """`role`: of `MODULES`. `keep`: descriptors that it inherits under the same numbers."""


def _start_interpreter(
    role: str, *, cwd: Path, env: Mapping[str, str], stdin: int, stdout: int, stderr: int, keep: Sequence[int]
) -> Started:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _START.format(MODULES[role]), str(_ROOT)],
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(keep),
        # Processes that it starts are killed with it.
        start_new_session=True,
    )


class Pair:
    """A judge and its worker, or a worker and a rank checker for each rank. They have been started, and wait.

    Close it, or use it as a context manager.
    """

    def __init__(
        self,
        *,
        ranks: int | None = None,
        start: Start | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`ranks`: as in the request."""
        start = start or _start_interpreter
        base = {
            key: value for key, value in os.environ.items() if key == EMULATE or not key.startswith(("POPCORN_", "KR_"))
        }
        base |= environment or {}
        self._directory = tempfile.TemporaryDirectory(prefix="kernel-runner-")
        places = {name: Path(self._directory.name) / name for name in ("judge", "worker")}
        for place in places.values():
            place.mkdir(mode=0o700)
        lines = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(ranks or 1)]
        to_checkers = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(ranks or 0)]
        ranks_line, judge_ranks = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        #: The stderr of the judge, of rank checkers and of the task's own code.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 closed in `close`
        self._base, self._start = base, start
        self._streams: tuple[int, ...] = (out_write, err_write)
        self.workers = [self._start_worker(worker_end, places["worker"]) for _, worker_end in lines]
        author_page = os.memfd_create("author page")
        os.ftruncate(author_page, AUTHOR_PAGE_BYTES)
        judge_end = lines[0][0]
        descriptors = {
            "KR_WORKER_FD": judge_end.fileno(),
            "KR_RANKS_FD": judge_ranks.fileno(),
            "KR_WORKER_STDOUT_FD": out_read,
            "KR_WORKER_STDERR_FD": err_read,
            AUTHOR_PAGE_FD: author_page,
        }
        self._judge = start(
            "judge",
            cwd=places["judge"],
            env=base | {key: str(descriptor) for key, descriptor in descriptors.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr.fileno(),
            keep=tuple(descriptors.values()),
        )
        self._checkers = [
            start(
                "rank_checker",
                cwd=places["judge"],
                env=base | {"KR_RANK_CHECKER_FD": str(end.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=self._stderr.fileno(),
                stderr=self._stderr.fileno(),
                keep=(end.fileno(),),
            )
            for _, end in to_checkers
        ]
        for further, _ in (*lines[1:], *to_checkers):
            socket.send_fds(ranks_line, [b"r"], [further.fileno()])
        self._ranks_line = ranks_line
        for end in (*(end for line in (*lines, *to_checkers) for end in line), judge_ranks):
            end.close()
        for descriptor in (out_read, err_read):
            os.close(descriptor)
        self._author_page = author_page
        self._all_started()
        self._write_lock = threading.Lock()
        self._ended = threading.Lock()
        self._threads = [
            threading.Thread(target=self._await_worker, args=(rank, worker), name=f"worker {rank} exit", daemon=True)
            for rank, worker in enumerate(self.workers)
        ]

    def _start_worker(
        self,
        worker_end: socket.socket,
        place: Path,
        *,
        start: Start | None = None,
        descriptors: Mapping[str, int] | None = None,
    ) -> Started:
        given = {"KR_JUDGE_FD": worker_end.fileno(), **(descriptors or {})}
        return (start or self._start)(
            "worker",
            cwd=place,
            env=self._base | {key: str(descriptor) for key, descriptor in given.items()} | {"HOME": str(place)},
            stdin=subprocess.DEVNULL,
            stdout=self._streams[0],
            stderr=self._streams[1],
            keep=tuple(given.values()),
        )

    def _all_started(self) -> None:
        """Close what only the start of workers needs."""
        self._ranks_line.close()
        for descriptor in self._streams:
            os.close(descriptor)
        self._streams = ()

    def run(
        self, request: JudgeRequest | Mapping[str, Any], *, on_frame: Callable[[dict[str, Any]], None] | None = None
    ) -> LocalReport:
        """Hand over the request and wait for the judge's last frame. May be called once.

        Raises:
            JudgeFailed: the judge ended with anything but 0, in code of its own.
        """
        payload = request.to_payload() if isinstance(request, JudgeRequest) else dict(request)
        self._to_judge({"type": "request", "payload": payload})
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
                        artifact = Artifact.from_message(message)
                        artifacts.append((artifact.name, artifact.media_type, artifact.data))
                    case "progress":
                        progress.append((message["phase"], message["done"], message["total"]))
        code = self._judge.wait()
        _kill(self._checkers)
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        author_exit = AuthorExit.read(self._author_page, how)
        if code != 0 and author_exit is None:
            self._stderr.seek(0)
            raise JudgeFailed(f"the judge ended with {code}:\n{self._stderr.read().decode(errors='replace')[-8000:]}")
        return LocalReport(
            steps=tuple(steps), artifacts=tuple(artifacts), progress=tuple(progress), author_exit=author_exit
        )

    def close(self) -> None:
        """Kill all processes and their sessions, and remove their directories."""
        _kill(self.workers)
        rest = [self._judge, *self._checkers]
        _kill(rest)
        for process in (*rest, *self.workers):
            process.wait()
        os.close(self._author_page)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=5)
        for stream in (self._judge.stdin, self._judge.stdout, self._stderr):
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

    def _await_worker(self, rank: int, worker: Started) -> None:
        """Tell the judge how a worker ended."""
        code = worker.wait()
        # All ranks end with the first one. Only the first says why.
        if worker in self.workers and self._ended.acquire(blocking=False):
            _kill(self.workers)
            self._tell_end(rank, code)

    def _tell_end(self, rank: int, code: int) -> None:
        ending = {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None}
        self._to_judge({"type": "worker_exit", "rank": rank, **ending})


def _kill(processes: Sequence[Started]) -> None:
    """Kill processes and what they have started in their sessions."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def evaluate(
    request: JudgeRequest,
    *,
    on_frame: Callable[[dict[str, Any]], None] | None = None,
    start: Start | None = None,
) -> LocalReport:
    """Start what a request needs, judge it, clean up; JudgeFailed if the judge broke.

    `start`: None gives every process a new interpreter.
    """
    with Pair(ranks=request.ranks, start=start) as pair:
        return pair.run(request, on_frame=on_frame)
