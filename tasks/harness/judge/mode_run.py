"""One mode while it runs: its result lines, its verdict and where its time went."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .cases import Case
from .faults import Fault
from .request import ModeRequest

_MAX_ERROR = 4_000
#: Tracebacks of one mode; the frontends show fewer.
_MAX_TRACES = 20


@dataclass(kw_only=True)
class ModeRun:
    """One mode while it runs."""

    request: ModeRequest
    cases: tuple[Case, ...]
    start_ns: int
    deadline_ns: int
    result: dict[str, str] = field(default_factory=dict)
    verdict: str = "accepted"
    message: str | None = None
    timed_out: bool = False
    #: Which of several ranks had not answered when the time limit passed.
    late: str = ""
    output_limit: bool = False
    #: Tracebacks of the submission, shown below its own stderr.
    traces: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    timing: str = "claimed"
    #: Phase -> nanoseconds spent in it.
    phases_ns: dict[str, int] = field(default_factory=dict)

    def spend(self, phase: str, nanoseconds: int) -> None:
        """Add to a phase."""
        self.phases_ns[phase] = self.phases_ns.get(phase, 0) + nanoseconds

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spend(name, time.perf_counter_ns() - start)

    @property
    def kind(self) -> str:
        """test, benchmark, leaderboard or profile."""
        return self.request.name.partition(".")[0]

    @property
    def prefix(self) -> str:
        """The first part of the result keys."""
        return "test" if self.kind == "test" else "benchmark"

    def fail(self, index: int | None, verdict: str, text: str, *, trace: str = "") -> None:
        """Record a failure. The first one decides the mode's verdict."""
        where = f"{self.prefix} {index + 1} of {len(self.cases)}: " if index is not None else ""
        if index is not None:
            self.result[f"{self.prefix}.{index}.status"] = "fail"
            self.result[f"{self.prefix}.{index}.error"] = one_line(text)
        if trace and len(self.traces) < _MAX_TRACES:
            self.traces.append(f"{where}Traceback (most recent call last):\n{trace}{text}\n")
        if self.verdict == "accepted":
            self.verdict = verdict
            self.message = where + text[:_MAX_ERROR]

    def fail_with(self, index: int | None, fault: Fault) -> None:
        """Record a fault of the submission."""
        self.timed_out = self.timed_out or fault.timed_out
        self.late = self.late or fault.late
        self.output_limit = self.output_limit or fault.output_limit
        self.fail(index, fault.verdict, fault.message, trace=fault.trace)


def check_time_limit(run: ModeRun) -> None:
    """Raise a Fault if the mode's time is up."""
    if time.monotonic_ns() > run.deadline_ns:
        raise Fault("time_limit", "the time limit passed", gone=True)


def one_line(text: str) -> str:
    """A text as a value of a result line."""
    # Result lines are split at newlines. Frontends turn the two characters back into one.
    return text[:_MAX_ERROR].strip().replace("\n", "\\n")
