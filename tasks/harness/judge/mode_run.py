"""One mode while it runs: reports of its cases, its verdict and where its time went."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .cases import Case
from .faults import Fault
from .report import CaseReport
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
    #: What its timed cases have taken the judge.
    judged_ns: float = 0.0
    #: How many cases it has; None: they could not be read.
    announced: int | None = None
    #: One for each case that was begun, in their order.
    reports: list[CaseReport] = field(default_factory=list)
    verdict: str = "accepted"
    message: str | None = None
    #: Which of several ranks had not answered when the time limit passed.
    late: str = ""
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

    def place(self, index: int) -> str:
        """A case in a sentence."""
        return f"{'test' if self.kind == 'test' else 'benchmark'} {index + 1} of {len(self.cases)}"

    def report(self, index: int, **findings: Any) -> None:
        """Add to what is reported of a case that was begun."""
        self.reports[index] = replace(self.reports[index], **findings)

    def fail(self, index: int | None, verdict: str, text: str, *, trace: str = "") -> None:
        """Record a failure. The first one decides the mode's verdict."""
        where = ""
        if index is not None:
            where = f"{self.place(index)}: "
            self.report(index, status="fail", error=shown(text))
        if trace and len(self.traces) < _MAX_TRACES:
            self.traces.append(f"{where}Traceback (most recent call last):\n{trace}{text}\n")
        if self.verdict == "accepted":
            self.verdict = verdict
            self.message = where + text[:_MAX_ERROR]

    def fail_with(self, index: int | None, fault: Fault) -> None:
        """Record a fault of the submission."""
        self.late = self.late or fault.late
        self.fail(index, fault.verdict, fault.message, trace=fault.trace)


def check_time_limit(run: ModeRun) -> None:
    """Raise a Fault if the mode's time is up."""
    if time.monotonic_ns() > run.deadline_ns:
        raise Fault("time_limit", "the time limit passed", gone=True)


def shown(text: str) -> str:
    """As much of a text as the report of a case holds."""
    return text[:_MAX_ERROR].strip()
