"""Reads the cases of a run's flat `result` mapping, for the command line and the gateway. Pure.

The keys, such as `test.0.status` and `benchmark.3.mean`, are written by `tasks.harness.judge.report` and, for the speed
of light, by `runner.evaluation.result_rows`; but also by a third party's eval program, so no key is trusted. A value
that is missing or does not parse is None.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["test", "benchmark"]
_KINDS: Final[tuple[Kind, ...]] = ("test", "benchmark")
#: More cases than this are not looked for, whatever a program announces.
MAX_CASES: Final = 10_000
#: A trend of this probability and this size is worth a word; so is a share of samples far out.
_DRIFTS_P: Final = 0.01
_DRIFTS_BY: Final = 0.02
_MANY_OUTLIERS: Final = 0.1
#: Standard errors from a mean to the end of its 95 % confidence interval.
_CI95_ERRORS: Final = 1.96
_CUT_SHORT: Final = {
    "wall_time": "cut short by the clock",
    "kernel_time": "cut short by the time in calls",
    "check_time": "cut short by the time in checks",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of a run; times in nanoseconds."""

    kind: Kind
    index: int
    spec: str
    #: None where a test's program said neither pass nor fail. A benchmark that did not fail has passed.
    passed: bool | None
    #: Why the case failed; what the check says of a right output.
    error: str | None
    message: str | None
    runs: int | None
    mean_ns: float | None
    #: A 95 % confidence interval of the mean; of the normal distribution where only the standard error is given.
    mean_ci95_ns: tuple[float, float] | None
    median_ns: float | None
    best_ns: float | None
    worst_ns: float | None
    #: Fraction of the speed of light, and what bounds it: math or memory.
    sol: float | None
    sol_limit: str | None
    #: The `TimingAssurance`, and where the judge's clock puts the mean (`runner.interval`); None: not said.
    timing: str | None
    bounds_ns: tuple[float, float] | None
    #: What a reader should know of the times: noise, drift, samples far out, a ceiling that came before the interval.
    remarks: tuple[str, ...]
    #: What a profiler printed.
    report: str | None


def is_repeated(mode: str, result: object, ranked: Sequence[object]) -> bool:
    """Whether a run's result is that of one of these ranked runs: one measurement served both."""
    return mode == "benchmark" and bool(result) and result in ranked


def cases(result: object, *, most: int = MAX_CASES) -> tuple[Case, ...]:
    """The cases that are in a result, at most so many of each kind, tests first; none where it is no mapping."""
    if not isinstance(result, Mapping):
        return ()
    return tuple(_case(result, kind, index) for kind in _KINDS for index in range(_count(result, kind, most)))


def number(value: object) -> float | None:
    """A finite number, from any value that a program may have written."""
    try:
        parsed = float(value)  # type: ignore[arg-type]  # what is none raises
    except (TypeError, ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) else None


def combined(times: Sequence[float], ranking_by: str | None) -> float:
    """A score from the mean times of its benchmarks: the last, their arithmetic mean, or their geometric mean."""
    if ranking_by == "last":
        return times[-1]
    if ranking_by == "mean":
        return math.fsum(times) / len(times)
    return math.exp(math.fsum(map(math.log, times)) / len(times))


def _case(result: Mapping[str, Any], kind: Kind, index: int) -> Case:
    prefix = f"{kind}.{index}."

    def text(key: str) -> str | None:
        value = result.get(prefix + key)
        return None if value is None else str(value)

    mean_ns, deviation_ns = number(text("mean")), number(text("err"))
    interval = _pair(text("runner.mean_ci95"))
    if interval is None and mean_ns is not None and deviation_ns is not None:
        # The normal approximation of a 95 % interval, which KernelBot's `err` (a standard error) allows.
        interval = _finite(mean_ns - _CI95_ERRORS * deviation_ns, mean_ns + _CI95_ERRORS * deviation_ns)
    runs, status, error, report = number(text("runs")), text("status"), text("error"), text("report")
    return Case(
        kind=kind,
        index=index,
        spec=text("spec") or "",
        passed=_passed(kind, status, error),
        error=error or ("failed" if status == "fail" else None),
        message=text("message") or None,
        runs=None if runs is None else int(runs),
        mean_ns=mean_ns,
        mean_ci95_ns=interval,
        median_ns=number(text("median")),
        best_ns=number(text("best")),
        worst_ns=number(text("worst")),
        sol=number(text("sol")),
        sol_limit=text("sol_limit"),
        timing=text("runner.timing"),
        bounds_ns=_pair(text("runner.interval")),
        remarks=tuple(_remarks({key: text(f"runner.{key}") for key in _REMARKED})),
        report=None if report is None else _decoded(report),
    )


def _passed(kind: str, status: str | None, error: str | None) -> bool | None:
    if status in ("pass", "fail"):
        return status == "pass"
    return None if kind == "test" else not error


_REMARKED: Final = ("noisy", "drift", "drift_p", "outliers", "stopped")


def _remarks(judge: Mapping[str, str | None]) -> Iterator[str]:
    """What the judge's statistics say that is out of the ordinary."""
    if judge["noisy"]:
        yield f"noisy: {judge['noisy']}"
    drift, p = number(judge["drift"]), number(judge["drift_p"])
    if drift is not None and p is not None and p < _DRIFTS_P and abs(drift) > _DRIFTS_BY:
        yield f"drifts by {drift:+.0%}"
    outliers = number(judge["outliers"])
    if outliers is not None and outliers > _MANY_OUTLIERS:
        yield f"{outliers:.0%} outliers"
    cut_short = _CUT_SHORT.get(judge["stopped"] or "")
    if cut_short is not None:
        yield cut_short


def _decoded(text: str) -> str:
    """A profiler's report as text; what is no base64 is shown as it is."""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError):
        return text


def _pair(text: str | None) -> tuple[float, float] | None:
    """Two finite numbers in a JSON list."""
    try:
        low, high = json.loads(text or "")
    except (TypeError, ValueError, RecursionError):
        return None
    return _finite(low, high)


def _finite(low: object, high: object) -> tuple[float, float] | None:
    """Two numbers, if both are finite."""
    bounds = number(low), number(high)
    return None if bounds[0] is None or bounds[1] is None else (bounds[0], bounds[1])


def _count(result: Mapping[str, Any], kind: str, most: int) -> int:
    """How many cases are there, which may be fewer than announced: a run may have stopped at one that fails."""
    announced = number(result.get(f"{kind}-count"))
    limit = min(most, MAX_CASES if announced is None else max(int(announced), 0))
    present = 0
    while present < limit and any(f"{kind}.{present}.{key}" in result for key in ("spec", "status", "mean", "report")):
        present += 1
    return present
