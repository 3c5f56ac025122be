"""A worker process of any contender, seen from both sides: the benchmark starts, stops and reads it; it takes notes.

A worker is `python -m MODULE JSON`. It says `ready` on its standard output when it serves, ends on SIGTERM, and then
writes its notes: one line per event, with the system-wide monotonic clock, so that two processes' times compare.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[3]
_START_S: Final = 300.0
_STOP_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something that happened in a worker."""

    #: `start`: it has the job in hand; `stop`: it was told to end the job.
    what: str
    #: The contender's own name for the job.
    key: int
    at_ns: int


@dataclass
class Notebook:
    """The worker's side: notes in memory, written when it ends. Appending is threadsafe."""

    notes: list[tuple[str, int, int]] = field(default_factory=list)

    def note(self, what: str, key: int) -> None:
        """Remember that this happens now."""
        self.notes.append((what, key, time.monotonic_ns()))

    def write(self, path: str) -> None:
        """Hand the notes over, complete or not at all."""
        part = Path(f"{path}.part")
        part.write_text("".join(f"{what} {key} {at_ns}\n" for what, key, at_ns in self.notes), encoding="utf-8")
        part.rename(path)


def say_ready() -> None:
    """Tell the benchmark that this worker serves; from now on it ends when the benchmark is gone."""
    threading.Thread(target=_end_with_the_benchmark, daemon=True).start()
    print("ready", flush=True)


def _end_with_the_benchmark() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


class Worker:
    """The benchmark's side: one process."""

    def __init__(self, module: str, **options: object) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kernel-runner-bench-")
        self._notes = Path(self._directory.name) / "notes"
        self._log = Path(self._directory.name) / "log"
        arguments: Mapping[str, Any] = {**options, "notes": str(self._notes)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                # No setting of the shell's may reach a worker.
                env={name: value for name, value in os.environ.items() if not name.startswith("KERNEL_RUNNER_")},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        self._directory.cleanup()

    @property
    def said(self) -> str:
        """What it wrote on standard error."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_ready(self) -> None:
        """Wait until it serves."""
        if self._process.stdout is None:
            raise RuntimeError("the worker has no standard output")
        watchdog = time.monotonic() + _START_S
        line = self._process.stdout.readline()
        if line.strip() != b"ready" or time.monotonic() > watchdog:
            self.kill()
            raise RuntimeError(f"a worker did not start: {self.said[-4000:]}")

    def stop(self) -> list[Note]:
        """End it politely; its notes."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"a worker did not stop: {self.said[-4000:]}") from None
        if not self._notes.exists():
            raise RuntimeError(f"a worker left no notes: {self.said[-4000:]}")
        lines = self._notes.read_text(encoding="utf-8").splitlines()
        return [Note(what=what, key=int(key), at_ns=int(at_ns)) for what, key, at_ns in map(str.split, lines)]

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait(_STOP_S)
