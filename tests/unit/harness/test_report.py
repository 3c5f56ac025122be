"""The judge's reports as KernelBot's result lines."""

from __future__ import annotations

import json
from typing import Any

from tasks.harness.judge.report import CaseReport, TimingReport, result_lines
from tasks.harness.judge.stats import Summary

#: Statistics, and how KernelBot writes them: Python's shortest form of a float, lists in brackets.
STATISTICS: dict[str, tuple[Any, str]] = {
    "runs": (20, "20"),
    "mean": (1000.25, "1000.25"),
    "std": (2.5, "2.5"),
    "err": (0.559, "0.559"),
    "best": (990.0, "990.0"),
    "worst": (1e16, "1e+16"),
    "median": (1000.0, "1000.0"),
    "p10": (991.0, "991.0"),
    "p25": (995.0, "995.0"),
    "p90": (1009.0, "1009.0"),
    "ci95": ((1.0, 2.5), "[1.0, 2.5]"),
}
#: Ours, and theirs in the lines.
FURTHER: dict[str, tuple[Any, str]] = {
    "mean_ci95": ((999.0, 1001.5), "[999.0, 1001.5]"),
    "outliers": (0.123456, "0.1235"),
    "stopped": ("interval", "interval"),
    "drift": (-0.0000123, "-1e-05"),
    "drift_p": (0.12345678, "0.123457"),
    "noisy": ("the mean lies anywhere", "the mean lies anywhere"),
    "timing": ("audited", "audited"),
    "interval": ((990.1, 1010.9), "[990.1, 1010.9]"),
    "host": ("in 3 of 20 calls", "in 3 of 20 calls"),
}
SUMMARY = Summary(**{name: value for name, (value, _) in STATISTICS.items()})
TIMING = TimingReport(
    summary=SUMMARY, **{{"timing": "assurance"}.get(name, name): value for name, (value, _) in FURTHER.items()}
)


def test_a_timed_case_has_every_key() -> None:
    """KernelBot's, and ours. An eval program reads the same from its own judge's message."""
    case = CaseReport(spec="n: 1", timing=TIMING)
    assert result_lines("leaderboard", [case], count=3, passed=True) == {
        "benchmark-count": "3",
        "benchmark.0.spec": "n: 1",
        **{f"benchmark.0.{name}": text for name, (_, text) in STATISTICS.items()},
        **{f"benchmark.0.runner.{name}": text for name, (_, text) in FURTHER.items()},
        "check": "pass",
    }
    case = CaseReport(spec="n: 1", timing=TIMING)
    assert CaseReport.from_message(json.loads(json.dumps(case.to_message()))) == case


def test_what_is_not_known_has_no_key() -> None:
    """Neither has a mode whose cases could not be read, or a case that did not fail."""
    assert result_lines("test", [], count=None, passed=False) == {"check": "fail"}
    cases = [CaseReport(spec="a", status="pass", message="ok\nso"), CaseReport(spec="b", status="fail", error="x\ny")]
    assert result_lines("test", cases, count=2, passed=False) == {
        "test-count": "2",
        "test.0.spec": "a",
        "test.0.status": "pass",
        "test.0.message": "ok\\nso",
        "test.1.spec": "b",
        "test.1.status": "fail",
        "test.1.error": "x\\ny",
        "check": "fail",
    }
    profiled = CaseReport(spec="a", profile_b64="eA==")
    assert result_lines("profile.1", [profiled], count=1, passed=True)["benchmark.0.report"] == "eA=="
