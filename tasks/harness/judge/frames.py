"""The judge's report: frames on the descriptor that was stdout."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from sandbox.protocol import Judged, StepResult, encode

from .worker_output import Captured

_PROGRESS_NS = 200_000_000


class Frames:
    """Writes frames to what was stdout. Nothing else writes there: descriptor 1 becomes stderr."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._last_ns = 0

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one frame."""
        data = memoryview(encode(message))
        while data:
            data = data[os.write(self._fd, data) :]

    def step(self, name: str, judged: Judged, captured: Captured, **facts: Any) -> None:
        """Write a step frame; `facts`: its other fields."""
        step = StepResult(name=name, command=f"judge {name}", judged=judged, **{**vars(captured), **facts})
        self.send(step.to_message())

    def progress(self, phase: str, done: int, total: int) -> None:
        """Write a progress frame, at most five a second except for the first and last of a phase."""
        now = time.monotonic_ns()
        if done in (0, total) or now - self._last_ns >= _PROGRESS_NS:
            self._last_ns = now
            self.send({"type": "progress", "phase": phase, "done": done, "total": total})
