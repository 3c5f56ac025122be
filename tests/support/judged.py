"""What a judged step says, in the lines that its row will have."""

from __future__ import annotations

from sandbox.protocol import StepResult
from tasks.harness.judge.report import CaseReport, result_lines


def lines_of(step: StepResult) -> dict[str, str]:
    """KernelBot's result lines of a step that the judge made."""
    assert step.judged is not None
    reports = [CaseReport.from_message(case) for case in step.judged.cases]
    return result_lines(step.name, reports, count=step.judged.announced, passed=step.judged.verdict == "accepted")
