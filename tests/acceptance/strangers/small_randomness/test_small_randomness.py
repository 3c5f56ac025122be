"""Outputs of which the generators decide a part that is smaller than the tolerance, or seldom any."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import copy_of, judged, pair

_COPIES = 3


def test_noise_below_the_tolerance(processes: ForkedJudges) -> None:
    """Two draws differ by more than the tolerance now and then; seeds make them equal."""
    reference = (Path(__file__).parent / "reference.txt").read_text()
    rows = judged(processes, reference, *[copy_of(reference)] * _COPIES)
    assert [row["verdict"] for row in rows] == ["accepted"] * _COPIES, rows
    assert (rows[0]["random"], rows[0]["max_abs_error"]) == (True, 0.0)


@pytest.mark.parametrize(
    ("forward", "pre"),
    [
        ("return x + 6e-5 * torch.randn_like(x) if self.training else x", ""),
        ("return x * (3 if torch.rand(1) < 0.1 else 1)", ""),
        ("return x + 6e-5 * torch.from_numpy(np.random.randn(8, 16)).float()", "import numpy as np\n"),
        ("return x + 6e-5 * random.gauss(0, 1)", "import random\n"),
        ("return F.dropout(x, 1e-3, self.training)", ""),
    ],
)
def test_small_parts_of_other_kinds(processes: ForkedJudges, forward: str, pre: str) -> None:
    """In one mode alone, in few calls, by other generators."""
    reference, copy = pair(forward, pre=pre)
    rows = judged(processes, reference, *[copy] * _COPIES)
    assert [row["verdict"] for row in rows] == ["accepted"] * _COPIES, rows
