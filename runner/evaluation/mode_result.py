"""The result lines of one mode, read once: case counts, times and failures as numbers and sentences. Pure.

The lines have KernelBot's keys (`benchmark.3.mean`). They come from the judge, or from an eval program that may be a
third party's. So no key is trusted to be there, and no value to be a number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from runner.model import TimingAssurance
from sandbox.protocol import StepResult

#: A time below this is none, and its logarithm in seconds may not exist.
_LEAST_NS = 1e-3


@dataclass(frozen=True, kw_only=True)
class CaseTiming:
    """The time that one benchmark case reports, in nanoseconds."""

    #: None: it is absent, not finite, or too small to be a time. For messages there is the text, too.
    mean_ns: float | None
    mean_text: str | None
    #: What the judge's clock vouches for, and the bounds that it found; None where it says nothing, or there is none.
    timing: TimingAssurance | None
    interval_ns: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class ModeResult:
    """What one mode reports."""

    #: "pass", "fail", or anything else that a program wrote; None: nothing.
    check: str | None
    #: Announced numbers of cases; None: absent, or no sane number.
    tests: int | None
    benchmarks: int | None
    #: One for each announced benchmark, but at most as many as were asked for.
    timings: tuple[CaseTiming, ...]
    #: The first failed case, as a sentence; None: no case is marked as failed.
    failure: str | None

    @classmethod
    def read(cls, step: StepResult, *, asked: int) -> Self:
        """Read the lines of a step in which so many cases were asked for."""
        tests, benchmarks = (_case_count(step.result, kind) for kind in ("test", "benchmark"))
        return cls(
            check=step.result.get("check"),
            tests=tests,
            benchmarks=benchmarks,
            timings=tuple(
                _timing(step.result, f"benchmark.{index}", judged=step.judged is not None)
                for index in range(min(benchmarks or 0, asked))
            ),
            failure=_failure(step.result, "test", tests) or _failure(step.result, "benchmark", benchmarks),
        )


def assurance_of(word: str) -> TimingAssurance:
    """An assurance as the judge writes it; an unknown word counts as claimed."""
    return TimingAssurance(word) if word in set(TimingAssurance) else TimingAssurance.CLAIMED


def _case_count(lines: Mapping[str, str], kind: str) -> int | None:
    text = lines.get(f"{kind}-count", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None


def _failure(lines: Mapping[str, str], kind: str, count: int | None) -> str | None:
    for index in range(count or 0):
        if lines.get(f"{kind}.{index}.status") == "fail":
            spec = lines.get(f"{kind}.{index}.spec", "?")
            error = lines.get(f"{kind}.{index}.error", "no reason given")
            return f"case {index} ({spec}): {error}"
    return None


def _timing(lines: Mapping[str, str], prefix: str, *, judged: bool) -> CaseTiming:
    """One case's time. An eval program cannot vouch for its own times."""
    mean = lines.get(f"{prefix}.mean")
    timing = lines.get(f"{prefix}.runner.timing") if judged else None
    return CaseTiming(
        mean_ns=_positive(mean),
        mean_text=mean,
        timing=None if timing is None else assurance_of(timing),
        interval_ns=_interval(lines.get(f"{prefix}.runner.interval")) if judged else None,
    )


def _positive(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= _LEAST_NS else None


def _interval(text: str | None) -> tuple[float, float] | None:
    """Two positive numbers in a JSON list, the lower first."""
    try:
        low, high = json.loads(text or "")
        pair = float(low), float(high)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return pair if all(map(math.isfinite, pair)) and 0 < pair[0] <= pair[1] else None
