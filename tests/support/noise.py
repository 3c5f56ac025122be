"""Times that a judge refuses as noise are judged again, as a daemon does: tests share the cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from runner.base.errors import EvaluationError
from tasks.harness.local import LocalReport

#: As often as a daemon begins a job.
ATTEMPTS: Final = 3
#: What the sentence of such a refusal holds.
NOISE: Final = "of the calls of a known kernel beside them were disturbed"

_T = TypeVar("_T")


def again_if_noise(evaluate: Callable[[], _T]) -> _T:
    """What an evaluation returns, the last of its attempts whatever it does."""
    for _ in range(ATTEMPTS - 1):
        try:
            outcome = evaluate()
        except EvaluationError as error:
            if NOISE not in str(error):
                raise
        else:
            if not (isinstance(outcome, LocalReport) and _is_noise(outcome)):
                return outcome
    return evaluate()


def _is_noise(report: LocalReport) -> bool:
    return any(step.judged is not None and NOISE in (step.judged.message or "") for step in report.steps)
