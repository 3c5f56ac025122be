"""The contents of a run's flat `result` mapping, as records. Pure.

The mapping has keys like `test.0.status` and `benchmark.3.mean`. A third party's eval program may have written it, so
no key is trusted. A value that is missing or does not parse is None.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: More lines than this are not looked for, whatever a program announces.
MAX_CASES = 10_000
#: A trend of this probability and this size is worth a word; so is a share of samples far out.
_DRIFTS_P = 0.01
_DRIFTS_BY = 0.02
_MANY_OUTLIERS = 0.1
_CUT_SHORT = {
    "wall_time": "cut short by the clock",
    "kernel_time": "cut short by the time in calls",
    "check_time": "cut short by the time in checks",
}


@dataclass(frozen=True, kw_only=True)
class CheckedCase:
    """One test case of a run."""

    index: int
    spec: str
    #: None where the program said neither pass nor fail.
    passed: bool | None
    message: str | None


@dataclass(frozen=True, kw_only=True)
class TimedCase:
    """One benchmark case of a run; times in nanoseconds."""

    index: int
    spec: str
    runs: int | None
    mean_ns: float | None
    #: Half width of the 95 % confidence interval of the mean; the standard error times 1.96 where only that is given.
    ci95_ns: float | None
    median_ns: float | None
    best_ns: float | None
    worst_ns: float | None
    #: Fraction of the speed of light, and what bounds it: math or memory.
    sol: float | None
    sol_limit: str | None
    #: Why the case failed; None when it did not.
    error: str | None
    #: The `TimingAssurance`, and where the judge measured the bounds; None: not said.
    timing: str | None
    interval_ns: tuple[float, float] | None
    #: What a reader should know of the times: noise, drift, samples far out, a ceiling that came before the interval.
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ProfiledCase:
    """One profiled case of a run."""

    spec: str
    #: What the profiler printed.
    report: str


def checked_cases(result: Mapping[str, str]) -> tuple[CheckedCase, ...]:
    """The test cases of a run, in order; empty when it has none."""
    return tuple(
        CheckedCase(
            index=index,
            spec=result.get(f"test.{index}.spec", ""),
            passed={"pass": True, "fail": False}.get(result.get(f"test.{index}.status", "")),
            message=result.get(f"test.{index}.error") or result.get(f"test.{index}.message") or None,
        )
        for index in range(_count(result, "test"))
    )


def timed_cases(result: Mapping[str, str]) -> tuple[TimedCase, ...]:
    """The benchmark cases of a run, in order; empty when it has none."""
    return tuple(_timed_case(result, index) for index in range(_count(result, "benchmark")))


def profiled_cases(result: Mapping[str, str]) -> tuple[ProfiledCase, ...]:
    """The cases of a run that have a profiler's report, in order; empty when none has."""
    indices = [index for index in range(MAX_CASES) if f"benchmark.{index}.report" in result] if result else []
    return tuple(
        ProfiledCase(
            spec=result.get(f"benchmark.{index}.spec", ""), report=_decoded(result[f"benchmark.{index}.report"])
        )
        for index in indices
    )


def _decoded(text: str) -> str:
    """A report as text; what is no base64 is shown as it is."""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError):
        return text


def _timed_case(result: Mapping[str, str], index: int) -> TimedCase:
    prefix = f"benchmark.{index}."
    error = _number(result, prefix + "err")
    interval = _pair(result, prefix + "runner.mean_ci95")
    # 1.96 standard errors: the normal approximation of a 95 % interval, which KernelBot's `err` allows.
    ci95 = (interval[1] - interval[0]) / 2 if interval else None if error is None else 1.96 * error
    runs = _number(result, prefix + "runs")
    failed = result.get(prefix + "status") == "fail"
    return TimedCase(
        index=index,
        spec=result.get(prefix + "spec", ""),
        runs=None if runs is None else int(runs),
        mean_ns=_number(result, prefix + "mean"),
        ci95_ns=ci95,
        median_ns=_number(result, prefix + "median"),
        best_ns=_number(result, prefix + "best"),
        worst_ns=_number(result, prefix + "worst"),
        sol=_number(result, prefix + "sol"),
        sol_limit=result.get(prefix + "sol_limit"),
        error=result.get(prefix + "error") or ("failed" if failed else None),
        timing=result.get(prefix + "runner.timing"),
        interval_ns=_pair(result, prefix + "runner.interval"),
        remarks=tuple(_remarks(result, prefix + "runner.")),
    )


def _remarks(result: Mapping[str, str], prefix: str) -> Iterator[str]:
    """What the judge's statistics say that is out of the ordinary."""
    if result.get(prefix + "noisy"):
        yield f"noisy: {result[prefix + 'noisy']}"
    drift, p = _number(result, prefix + "drift"), _number(result, prefix + "drift_p")
    if drift is not None and p is not None and p < _DRIFTS_P and abs(drift) > _DRIFTS_BY:
        yield f"drifts by {drift:+.0%}"
    outliers = _number(result, prefix + "outliers")
    if outliers is not None and outliers > _MANY_OUTLIERS:
        yield f"{outliers:.0%} outliers"
    if result.get(prefix + "stopped") in _CUT_SHORT:
        yield _CUT_SHORT[result[prefix + "stopped"]]


def _pair(result: Mapping[str, str], key: str) -> tuple[float, float] | None:
    """Two finite numbers in a JSON list."""
    try:
        low, high = json.loads(result[key])
        pair = float(low), float(high)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return pair if all(map(math.isfinite, pair)) else None


def _count(result: Mapping[str, str], kind: str) -> int:
    """How many cases were announced, or how many are there when the announcement is missing or lies."""
    announced = _number(result, f"{kind}-count")
    present = 0
    while present < MAX_CASES and any(f"{kind}.{present}.{key}" in result for key in ("spec", "status", "mean")):
        present += 1
    if announced is None:
        return present
    # A run that stopped at a failing case announced more cases than it has: only what is there is shown.
    return min(max(int(announced), 0), present)


def _number(result: Mapping[str, str], key: str) -> float | None:
    try:
        value = float(result[key])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
