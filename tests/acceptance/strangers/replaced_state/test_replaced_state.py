"""Modules whose calls give names of their state_dict other tensors, as `self.mean = 0.9 * self.mean + ...` does."""

from __future__ import annotations

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, judged_copy, pair

_NORM = """\
if self.training:
    mean, var = x.mean(0), x.var(0)
    self.mean = 0.9 * self.mean + 0.1 * mean
    self.var = 0.9 * self.var + 0.1 * var
else:
    mean, var = self.mean, self.var
return (x - mean) / (var + 1e-5).sqrt()"""
_NORM_INIT = "self.register_buffer('mean', torch.zeros(16))\nself.register_buffer('var', torch.ones(16))"
#: What a call does -> the state_dict's entry `w` or those of a part `l` that are other tensors afterwards.
_REPLACES = {
    "a parameter": ("self.w = nn.Parameter(self.w.clone())", "self.w = nn.Parameter(torch.randn(16))"),
    "a parameter of a part": ("self.l.weight = nn.Parameter(self.l.weight * 1)", "self.l = nn.Linear(16, 16)"),
    "a buffer": ("self.w = self.w * 1", "self.register_buffer('w', torch.randn(16))"),
    "a part": ("self.l = copy.deepcopy(self.l)", "self.l = nn.Linear(16, 16)"),
    "a part of another dtype": ("self.l = self.l.double().float()", "self.l = nn.Linear(16, 16)"),
    "a name that was not there": ("self.register_buffer('w', torch.ones(16))", "pass"),
    "a name that is gone": (
        "self._buffers.pop('m', None)",
        "self.w = nn.Parameter(torch.randn(16))\nself.register_buffer('m', torch.ones(16))",
    ),
}


@pytest.mark.parametrize("often", ["each call", "the first call"])
@pytest.mark.parametrize("kind", _REPLACES)
def test_a_copy_is_accepted(processes: ForkedJudges, kind: str, often: str) -> None:
    """Its weights are the reference's in every call, shifted ones too."""
    call, init = _REPLACES[kind]
    if often == "the first call":
        call, init = f"if self.new:\n    self.new = False\n    {call}", f"self.new = True\n{init}"
    result = "self.l(x)" if "self.l" in init else "x * self.w"
    row = judged_copy(processes, f"{call}\nreturn {result}", init, pre="import copy\n", timed_calls=3)
    assert row["verdict"] == "accepted", row


def test_running_statistics_that_are_assigned(processes: ForkedJudges) -> None:
    """A norm by hand has the statistics of its own calls; one that leaves them out in eval mode is wrong."""
    reference, copy = pair(_NORM, _NORM_INIT)
    right, wrong = judged(processes, reference, copy, copy.replace("= self.mean, self.var", "= 0, x.var(0)"))
    assert right["verdict"] == "accepted", right
    assert wrong["verdict"] == "wrong_answer", wrong
