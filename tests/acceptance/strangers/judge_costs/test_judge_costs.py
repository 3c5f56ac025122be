"""What the judge does for itself costs a candidate nothing: calls of a slow reference, large tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, judged_copy, pair

_HERE = Path(__file__).parent
_MEMORY_BYTES = 64 << 20


def test_a_slow_reference_uses_up_no_candidates_time(processes: ForkedJudges) -> None:
    """Calls of the reference, and checks by it, take longer than the candidate may; it returns at once."""
    reference, code = ((_HERE / name).read_text() for name in ("reference.txt", "candidate.txt"))
    (row,) = judged(processes, reference, code, timeout_s=6.0, timed_calls=40, inputs=20)
    assert row["verdict"] == "accepted", row
    # Fewer calls than asked for, as each takes the judge long.
    assert 5 <= row["candidate_stats"]["calls"] < 40
    assert row["speedup_low"] > 10


def test_a_reference_that_is_too_slow_is_named_with_what_it_needs(processes: ForkedJudges) -> None:
    """And no candidate is."""
    reference = (_HERE / "reference.txt").read_text().replace("0.3", "1.1")
    (row,) = judged(processes, reference, (_HERE / "candidate.txt").read_text(), timeout_s=3.0)
    assert (row["verdict"], row["stage"]) == ("invalid", "reference"), row
    for words in ("too slow for timeout_s 3", "expected a timeout_s of"):
        assert words in row["message"]


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        ("return x.sum()", "", "[torch.rand(1 << 28)]"),
        ("return x.sum()", "", "[torch.rand(1 << 22)]"),
        ("return x.sum()", "", "[torch.rand(8).expand(1 << 34, 8)]"),
        ("return x.sum()", "", "[torch.from_numpy(__import__('numpy').ones(1 << 27))]"),
        ("return x", "self.l = nn.Linear(1 << 14, 1 << 14)", "[torch.rand(8)]"),
        ("return x", "self.l = nn.Linear(1 << 11, 3 << 10)", "[torch.rand(8)]"),
        ("return x.expand(1 << 25, 8).contiguous()", "", "[torch.rand(8)]"),
        ("return x.expand(1 << 20, 8).contiguous()", "", "[torch.rand(8)]"),
        ("return x.expand(1 << 30, 1 << 10, 8)", "", "[torch.rand(8)]"),
    ],
)
def test_a_reference_that_does_not_fit_is_named_with_what_it_needs(
    processes: ForkedJudges, forward: str, init: str, inputs: str
) -> None:
    """Inputs, parameters and outputs; before the memory is used, so that nothing is killed for it."""
    row = judged_copy(processes, forward, init, inputs=inputs, memory_bytes=_MEMORY_BYTES)
    assert (row["verdict"], row["stage"]) == ("invalid", "reference"), row
    assert str(_MEMORY_BYTES) in row["message"], row
    assert "custom_kernel" not in row["message"]


def test_an_output_of_a_candidate_that_does_not_fit_is_its_own(processes: ForkedJudges) -> None:
    """With a sum that is right: inputs twice, outputs three times."""
    reference, copy = pair("return x.sum()")
    (row,) = judged(processes, reference, copy.replace("x.sum()", "torch.zeros(1 << 23)"), memory_bytes=_MEMORY_BYTES)
    assert row["verdict"] == "memory_limit", row
    assert f"may hold {_MEMORY_BYTES} bytes" in row["message"]
    assert "custom_kernel" not in row["message"]
