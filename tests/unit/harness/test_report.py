"""The judge's reports as KernelBot's result lines."""

from __future__ import annotations

import json

from tasks.harness.judge.report import CaseReport, TimingReport, result_lines
from tasks.harness.judge.stats import Summary

SUMMARY = Summary(
    runs=20,
    mean=1000.25,
    std=2.5,
    err=0.559,
    best=990.0,
    worst=1e16,
    median=1000.0,
    p10=991.0,
    p25=995.0,
    p90=1009.0,
    ci95=(1.0, 2.5),
)
TIMING = TimingReport(
    summary=SUMMARY,
    mean_ci95=(999.0, 1001.5),
    outliers=0.123456,
    drift=-0.0000123,
    drift_p=0.12345678,
    stopped="interval",
    noisy="the mean lies anywhere",
    assurance="audited",
    interval=(990.1, 1010.9),
    host="in 3 of 20 calls",
)
#: How KernelBot writes them: Python's shortest form of a float, lists in brackets.
LINES = {
    "runs": "20",
    "mean": "1000.25",
    "std": "2.5",
    "err": "0.559",
    "best": "990.0",
    "worst": "1e+16",
    "median": "1000.0",
    "p10": "991.0",
    "p25": "995.0",
    "p90": "1009.0",
    "ci95": "[1.0, 2.5]",
}
FURTHER = {
    "mean_ci95": "[999.0, 1001.5]",
    "outliers": "0.1235",
    "stopped": "interval",
    "drift": "-1e-05",
    "drift_p": "0.123457",
    "noisy": "the mean lies anywhere",
    "timing": "audited",
    "interval": "[990.1, 1010.9]",
    "host": "in 3 of 20 calls",
}


def prefixed(prefix: str, lines: dict[str, str]) -> dict[str, str]:
    """The lines with longer keys."""
    return {prefix + key: value for key, value in lines.items()}


def test_a_timed_case_has_every_key() -> None:
    """KernelBot's, and ours. An eval program reads the same from its own judge's message."""
    case = CaseReport(spec="n: 1", timing=TIMING)
    assert result_lines("leaderboard", [case], count=3, passed=True) == {
        "benchmark-count": "3",
        "benchmark.0.spec": "n: 1",
        **prefixed("benchmark.0.", LINES),
        **prefixed("benchmark.0.runner.", FURTHER),
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
