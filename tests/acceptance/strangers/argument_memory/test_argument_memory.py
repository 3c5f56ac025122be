"""Arguments that share memory or have strides of their own, for the reference as for a candidate."""

from __future__ import annotations

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged_copy

_ARGUMENTS = {
    "one tensor twice": "(lambda a: [a, a])(torch.randn(8, 8))",
    "one tensor twice, not contiguous": "(lambda a: [a, a])(torch.randn(16, 16)[::2, ::2])",
    "a transpose": "(lambda a: [a, a.t()])(torch.randn(8, 8))",
    "rows in common": "(lambda a: [a[:8], a[4:12]])(torch.randn(12, 8))",
    "rows in turns": "(lambda a: [a[::2], a[1::2]])(torch.randn(16, 8))",
    "a column": "(lambda a: [a, a[:, 1:2]])(torch.randn(8, 8))",
    "two types": "(lambda a: [a, a.view(torch.int32).clamp_(-9, 9)])(torch.zeros(8, 8))",
}
_FORWARDS = {
    "changes the first": "x.add_(1)\nreturn x + y",
    "changes the second": "y.add_(2)\nreturn x - y",
    "reads beyond": "return x.as_strided((4, 4), (2, 1)) + y.sum()",
    "asks for strides": "return x * sum(x.stride()) + y",
}


@pytest.mark.parametrize("arguments", _ARGUMENTS)
@pytest.mark.parametrize("forward", _FORWARDS)
def test_a_copy_is_accepted(processes: ForkedJudges, arguments: str, forward: str) -> None:
    """The reference's output for such arguments is that of a module in a worker."""
    called = f"x, y = x\n{_FORWARDS[forward]}"
    row = judged_copy(processes, called, inputs=f"[{_ARGUMENTS[arguments]}]", timed_calls=3)
    assert row["verdict"] == "accepted", row
