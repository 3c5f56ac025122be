"""Reads the report of one mode: case counts, times and failures as numbers and sentences. Pure.

Reports are not trusted. The judge's come as JSON (`tasks.harness.judge.report`), and every type in them is checked. An
eval program, which may be a third party's, writes lines with KernelBot's keys (`benchmark.3.mean`). Its keys may be
missing, and its values may be no numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from runner.base.errors import EvaluationError
from runner.base.model import TimingAssurance
from sandbox.protocol import Judged
from tasks.harness.judge.report import CaseReport, TimingReport

#: A time below this is none, and its logarithm in seconds may not exist.
_LEAST_NS = 1e-3
#: In JSON, strict means: a number is no text, a text no number, and neither is true or false.
_REPORTS: Final = TypeAdapter(
    tuple[CaseReport, ...], config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
)


@dataclass(frozen=True, kw_only=True)
class CaseTiming:
    """The time that one benchmark case reports, in nanoseconds."""

    #: None: it is absent, not finite, or too small to be a time. For messages there is the text, too.
    mean_ns: float | None
    mean_text: str | None
    #: The lower quartile of the calls; None where an eval program reports none.
    p25_ns: float | None = None
    #: `assurance` and `interval` of its TimingReport; None where the judge's clock says nothing, or there is none.
    timing: TimingAssurance | None = None
    interval_ns: tuple[float, float] | None = None


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
    #: The first failed case of an eval program, as a sentence; None: no case is marked as failed. The judge's own
    #: sentence is in its verdict.
    failure: str | None = None
    #: The judge's reports of the cases that it began; an eval program has none.
    cases: tuple[CaseReport, ...] = ()

    @classmethod
    def of_judge(cls, mode: str, judged: Judged, *, asked: int) -> Self:
        """Read the judge's report of a mode in which so many cases were asked for.

        Raises:
            EvaluationError: it has another form than the judge gives it.
        """
        try:
            # A text may hold half of a surrogate pair: a worker that a submission has rewritten can send one.
            cases = _REPORTS.validate_json(json.dumps(judged.cases, ensure_ascii=False).encode("utf-8", "replace"))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise EvaluationError(f"the judge's report of {mode!r} has at {where}: {first['msg']}") from error
        announced = judged.announced
        if announced is not None and len(cases) > announced:
            raise EvaluationError(f"the judge's report of {mode!r} has {len(cases)} of {announced} cases")
        timed = 0 if mode == "test" else min(announced or 0, asked)
        reports = [case.timing for case in cases[:timed]]
        return cls(
            check="pass" if judged.verdict == "accepted" else "fail",
            tests=announced if mode == "test" else None,
            benchmarks=None if mode == "test" else announced,
            timings=tuple(_judged_timing(report) for report in [*reports, *[None] * (timed - len(reports))]),
            cases=cases,
        )

    @classmethod
    def of_program(cls, lines: Mapping[str, str], *, asked: int) -> Self:
        """Read the lines of an eval program that was asked for so many cases."""
        tests, benchmarks = (_case_count(lines, kind) for kind in ("test", "benchmark"))
        means = [lines.get(f"benchmark.{index}.mean") for index in range(min(benchmarks or 0, asked))]
        return cls(
            check=lines.get("check"),
            tests=tests,
            benchmarks=benchmarks,
            # An eval program cannot vouch for its own times.
            timings=tuple(CaseTiming(mean_ns=_time(_number(text)), mean_text=text) for text in means),
            failure=_failure(lines, "test", tests) or _failure(lines, "benchmark", benchmarks),
        )


def assurance_of(word: str) -> TimingAssurance:
    """An assurance as the judge writes it; an unknown word counts as claimed."""
    return TimingAssurance(word) if word in set(TimingAssurance) else TimingAssurance.CLAIMED


def _judged_timing(report: TimingReport | None) -> CaseTiming:
    if report is None:
        return CaseTiming(mean_ns=None, mean_text=None)
    low, high = report.interval or (0.0, 0.0)
    return CaseTiming(
        mean_ns=_time(report.summary.mean),
        mean_text=str(report.summary.mean),
        p25_ns=_time(report.summary.p25),
        timing=assurance_of(report.assurance),
        interval_ns=(low, high) if 0 < low <= high else None,
    )


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


def _number(text: str | None) -> float:
    try:
        return math.nan if text is None else float(text)
    except ValueError:
        return math.nan


def _time(value: float) -> float | None:
    return value if math.isfinite(value) and value >= _LEAST_NS else None
