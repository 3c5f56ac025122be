"""Judges and workers without the wait: forked from processes that have imported torch already.

For corpora of many small evaluations. Real judge, real worker, real socket between them; what a container adds is not
there, so what only a container stops is not tested this way.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tasks.harness.judge.request import JudgeRequest
from tasks.harness.local import LocalReport, Started, evaluate
from tests.acceptance.judging.zygote import ORDER_BYTES
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
_START = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)
_ZYGOTE = "tests.acceptance.judging.zygote"


@dataclass(kw_only=True)
class _Child:
    """A forked process, as `local.Started` has it."""

    pid: int
    ended: queue.SimpleQueue[int]
    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    stderr: IO[bytes] | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; may be called often, and from several threads."""
        code = self.ended.get(timeout=timeout or PATIENCE_S)
        self.ended.put(code)
        return code


class _Zygote:
    """One role's parent process. Thread-safe."""

    def __init__(self, role: str) -> None:
        self._line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, str(ROOT), _ZYGOTE, role],
            env={**os.environ, "KR_ZYGOTE_FD": str(other.fileno())},
            pass_fds=(other.fileno(),),
        )
        other.close()
        self._lock = threading.Lock()
        self._born: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._ends: dict[int, queue.SimpleQueue[int]] = {}
        threading.Thread(target=self._listen, name=f"zygote {role}", daemon=True).start()

    def fork(self, order: Mapping[str, object], descriptors: Sequence[int]) -> _Child:
        """A new child with these descriptors."""
        with self._lock:
            socket.send_fds(self._line, [json.dumps(order).encode()], list(descriptors))
            pid = self._born.get(timeout=PATIENCE_S)
            return _Child(pid=pid, ended=self._ends[pid])

    def close(self) -> None:
        """End it and its children."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._process.wait(timeout=PATIENCE_S)
        self._line.close()

    def _listen(self) -> None:
        while data := self._line.recv(ORDER_BYTES):
            message = json.loads(data)
            if "code" in message:
                self._ends[message["pid"]].put(message["code"])
            else:
                self._ends[message["pid"]] = queue.SimpleQueue()
                self._born.put(message["pid"])


class Nursery:
    """Evaluates requests with forked judges and workers. The parent of a role is started when it is first needed."""

    def __init__(self) -> None:
        self._zygotes: dict[str, _Zygote] = {}
        self._starting = threading.Lock()

    def evaluate(self, request: JudgeRequest, *, without: Sequence[str] = ()) -> LocalReport:
        """Judge one request with fresh processes; see local.evaluate. `without`: see `start`, in the judge alone."""

        def start(role: str, **settings: Any) -> Started:  # noqa: ANN401 see Start
            return self.start(role, **settings, without=without if role == "judge" else ())

        return evaluate(request, start=start)

    def close(self) -> None:
        """End everything."""
        for zygote in self._zygotes.values():
            zygote.close()

    def start(
        self,
        role: str,
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        keep: Sequence[int],
        without: Sequence[str] = (),
    ) -> Started:
        """A process of a role; see local.Start. `without`: what the zygote switches off in it."""
        given: list[int] = []
        ours: list[IO[bytes] | None] = []
        made: list[int] = []
        for number, wanted in enumerate((stdin, stdout, stderr)):
            if wanted >= 0:
                given.append(wanted)
                ours.append(None)
                continue
            if wanted == subprocess.DEVNULL:
                given.append(os.open(os.devnull, os.O_RDWR))
                ours.append(None)
            else:
                read, write = os.pipe()
                given.append(read if number == 0 else write)
                ours.append(os.fdopen(write, "wb") if number == 0 else os.fdopen(read, "rb"))
            made.append(given[-1])
        order = {"cwd": str(cwd), "env": dict(env), "keep": list(keep), "without": list(without)}
        try:
            with self._starting:
                if role not in self._zygotes:
                    self._zygotes[role] = _Zygote(role)
            child = self._zygotes[role].fork(order, (*given, *keep))
        finally:
            for descriptor in made:
                os.close(descriptor)
        child.stdin, child.stdout, child.stderr = ours
        return child


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery, closed afterwards."""
    made = Nursery()
    try:
        yield made
    finally:
        made.close()
