"""What a run's flat `result` mapping says, as records. Pure; called by the renderers.

The mapping comes from an eval program that may be a third party's (keys `test.0.status`, `benchmark.3.mean`, ...), so
nothing in it is trusted to be there, or to be a number: what does not parse is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

#: More lines than this are not looked for, whatever a program announces.
MAX_CASES = 10_000


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
    best_ns: float | None
    worst_ns: float | None
    #: Fraction of the speed of light, and what bounds it: math or memory.
    sol: float | None
    sol_limit: str | None
    #: Why the case failed; None when it did not.
    error: str | None


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


def _timed_case(result: Mapping[str, str], index: int) -> TimedCase:
    prefix = f"benchmark.{index}."
    ci95 = _number(result, prefix + "ci95")
    if ci95 is None:
        error = _number(result, prefix + "err")
        # 1.96 standard errors: the normal approximation of a 95 % interval, which KernelBot's `err` allows.
        ci95 = None if error is None else 1.96 * error
    runs = _number(result, prefix + "runs")
    failed = result.get(prefix + "status") == "fail"
    return TimedCase(
        index=index,
        spec=result.get(prefix + "spec", ""),
        runs=None if runs is None else int(runs),
        mean_ns=_number(result, prefix + "mean"),
        ci95_ns=ci95,
        best_ns=_number(result, prefix + "best"),
        worst_ns=_number(result, prefix + "worst"),
        sol=_number(result, prefix + "sol"),
        sol_limit=result.get(prefix + "sol_limit"),
        error=result.get(prefix + "error") or ("failed" if failed else None),
    )


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
    except (KeyError, TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
