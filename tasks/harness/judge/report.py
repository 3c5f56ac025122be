"""What the judge reports of one case, as numbers; and KernelBot's result lines of such reports. Pure.

The reports travel to the daemon as JSON. KernelBot's keys and its formats of numbers are made here alone, when a row is
written (`runner.evaluation.kinds.kernel`) or an eval program answers (`tasks/problems/eval.py`). A field of a report
becomes a key in `_case_lines` or `_further_lines`. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from sandbox.protocol import read

from .stats import Summary


@dataclass(frozen=True, kw_only=True)
class TimingReport:
    """The times of one case, in nanoseconds."""

    summary: Summary
    #: A 95 % confidence interval of the mean.
    mean_ci95: tuple[float, float]
    #: The part of the samples that are outliers.
    outliers: float
    #: From the first to the last sample, as a part of the median, and how probable that is by chance; None: too few.
    drift: float | None
    drift_p: float | None
    #: Why the case ended: `Stopping.reason`.
    stopped: str
    #: Why the result is marked as noisy, as a sentence; None: it is not.
    noisy: str | None
    #: What the judge's clock vouches for: one of runner.base.model.TimingAssurance's values.
    assurance: str
    #: Bounds of the mean by the judge's clock, rounded outwards; None: it gives none. The key is `runner.interval`.
    interval: tuple[float, float] | None
    #: A sentence on calls beside which the submission could compute; None: there are none.
    host: str | None


@dataclass(frozen=True, kw_only=True)
class CaseReport:
    """What the judge found of one case that it has begun."""

    #: The case as the task's author wrote it.
    spec: str
    #: None: a case that was timed or profiled, and did not fail.
    status: Literal["pass", "fail"] | None = None
    error: str | None = None
    #: What the task's check says of a right output.
    message: str | None = None
    timing: TimingReport | None = None
    #: The profiler's tables, as base64.
    profile_b64: str | None = None
    #: Whose they are: torch, or a vendor's profiler.
    profiler: str | None = None

    def to_message(self) -> dict[str, Any]:
        """The report in JSON's types."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Read a report of the caller's own judge. The daemon, which trusts none, checks every type instead."""
        return read(cls, message, "case report")


def result_lines(mode: str, reports: Sequence[CaseReport], *, count: int | None, passed: bool) -> dict[str, str]:
    """KernelBot's result lines of one mode.

    Args:
        mode: its name. The keys begin with `test` or, for all others, with `benchmark`.
        reports: of the cases that were begun, in their order.
        count: how many cases the mode has; None: they could not be read.
        passed: whether the mode passed.
    """
    kind = "test" if mode == "test" else "benchmark"
    lines = {} if count is None else {f"{kind}-count": str(count)}
    for index, report in enumerate(reports):
        lines |= {f"{kind}.{index}.{key}": value for key, value in _case_lines(report)}
    return {**lines, "check": "pass" if passed else "fail"}


def _case_lines(report: CaseReport) -> Iterator[tuple[str, str]]:
    texts = {
        "spec": report.spec,
        "status": report.status,
        "error": _one_line(report.error),
        "message": _one_line(report.message),
        "report": report.profile_b64,
        "runner.profiler": report.profiler,
    }
    yield from ((key, text) for key, text in texts.items() if text is not None)
    if report.timing is not None:
        # KernelBot's keys, and more of their kind.
        yield from ((key, _text(value)) for key, value in asdict(report.timing.summary).items())
        yield from ((f"runner.{key}", value) for key, value in _further_lines(report.timing).items())


def _further_lines(timing: TimingReport) -> dict[str, str]:
    """What KernelBot has no keys for."""
    values = {
        "mean_ci95": timing.mean_ci95,
        "outliers": round(timing.outliers, 4),
        "stopped": timing.stopped,
        "drift": None if timing.drift is None else round(timing.drift, 5),
        "drift_p": None if timing.drift_p is None else round(timing.drift_p, 6),
        "noisy": timing.noisy,
        "timing": timing.assurance,
        "interval": timing.interval,
        "host": timing.host,
    }
    return {key: _text(value) for key, value in values.items() if value is not None}


def _text(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value)


def _one_line(text: str | None) -> str | None:
    """A text as a value of a result line; frontends turn the two characters back into one."""
    return None if text is None else text.replace("\n", "\\n")
