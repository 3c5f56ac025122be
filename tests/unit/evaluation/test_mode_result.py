"""Reports as numbers: of the judge, whose types are checked, and of a program, which may write anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner.base.errors import EvaluationError
from runner.base.model import TimingAssurance
from runner.evaluation.mode_result import ModeResult
from runner.evaluation.result_rows import within
from tasks.harness.judge.report import CaseReport, result_lines
from tests.unit import samples


def test_only_the_judge_vouches_for_a_time() -> None:
    """The same numbers in the lines of an eval program say nothing of what its times are worth."""
    cases = (
        CaseReport(spec="a", timing=samples.timing(11.0, assurance="audited", interval=(10.0, 12.5))),
        CaseReport(spec="b", timing=samples.timing(11.0, assurance="flawless", interval=(12.0, 10.0))),
    )
    lines = result_lines("benchmark", cases, count=2, passed=True)

    known, unknown = ModeResult.of_judge("benchmark", samples.judged(*cases), asked=2).timings
    claims = ModeResult.of_program(lines, asked=2).timings

    assert (known.timing, known.interval_ns) == (TimingAssurance.AUDITED, (10.0, 12.5))
    assert (unknown.timing, unknown.interval_ns) == (TimingAssurance.CLAIMED, None)
    assert [(each.timing, each.interval_ns) for each in claims] == [(None, None)] * 2


CASE = CaseReport(spec="n: 1", status="fail", error="late", timing=samples.timing(1234.5, interval=(1200.0, 1300.1)))


def _summary(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda case: case["timing"]["summary"].update(changes)


def _timing(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda case: case["timing"].update(changes)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_summary(mean="1234.5"), "0.timing.summary.mean"),
        (_summary(mean=True), "0.timing.summary.mean"),
        (_summary(mean=float("nan")), "0.timing.summary.mean"),
        (_summary(worst=float("inf")), "0.timing.summary.worst"),
        (_summary(runs=20.5), "0.timing.summary.runs"),
        (_summary(ci95=[1.0, 2.0, 3.0]), "0.timing.summary.ci95"),
        (_summary(mode=1.0), "0.timing.summary.mode"),
        (_timing(interval=["1", "2"]), "0.timing.interval.0"),
        (_timing(host=5), "0.timing.host"),
        (lambda case: case.pop("spec"), "0.spec"),
        (lambda case: case.update(status="perhaps"), "0.status"),
        (lambda case: case.update(timing="fast"), "0.timing"),
    ],
)
def test_a_report_of_another_form_is_our_fault(change: Callable[[dict[str, Any]], None], where: str) -> None:
    """Every type and every number is checked before anything is decided or stored."""
    judged = samples.judged(CASE)
    change(judged.cases[0])  # type: ignore[arg-type]  # a dict, as in JSON

    with pytest.raises(EvaluationError, match=f"the judge's report of 'benchmark' has at {where}"):
        ModeResult.of_judge("benchmark", judged, asked=1)


def test_no_text_of_a_worker_makes_a_report_unreadable() -> None:
    """A rewritten worker sends half of a surrogate pair: its verdict stays, and its row is one that can be written."""
    failed = CaseReport(spec="n: 1", status="fail", error="a \ud800 \0 b")
    reported = ModeResult.of_judge("test", samples.judged(failed), asked=1)
    assert within(result_lines("test", reported.cases, count=1, passed=False), 1000)["test.0.error"] == "a ? \0 b"
