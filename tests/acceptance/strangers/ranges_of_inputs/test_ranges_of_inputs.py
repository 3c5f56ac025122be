"""References that are defined for the inputs of their get_inputs and for no others."""

from __future__ import annotations

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.modules.problems import module
from tests.acceptance.strangers.modules import copy_of, judged

_TWO = "self, x, t"


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return F.binary_cross_entropy(x, t)", "[torch.rand(4, 5), torch.rand(4, 5).round()]"),
        ("return F.cross_entropy(x, t)", "[torch.randn(4, 500), torch.randint(0, 500, (4,))]"),
        ("return x[t]", "[torch.randn(500, 3), torch.randint(0, 500, (4,))]"),
    ],
    ids=["probabilities", "classes", "indices"],
)
def test_a_copy_is_accepted(processes: ForkedJudges, forward: str, inputs: str) -> None:
    """Few elements show less than the whole range, and many calls go beyond what a few have shown."""
    reference = f"{module('Model', forward, args=_TWO)}\ndef get_inputs():\n    return {inputs}\n"
    (row,) = judged(processes, reference, copy_of(reference), inputs=8, timed_calls=40)
    assert row["verdict"] == "accepted", row
    assert len(row["distributions"]) > 1


def test_a_distribution_that_fails_now_and_then_is_left_out(processes: ForkedJudges) -> None:
    """One draw may be right where others are not: matrices that are positive definite as they are made."""
    reference = (
        f"{module('Model', 'return torch.linalg.cholesky(x)')}\n"
        "def get_inputs():\n    return [torch.corrcoef(torch.randn(4, 40))]\n"
    )
    for _ in range(4):
        (row,) = judged(processes, reference, copy_of(reference), inputs=8, timed_calls=40)
        assert row["verdict"] == "accepted", row
