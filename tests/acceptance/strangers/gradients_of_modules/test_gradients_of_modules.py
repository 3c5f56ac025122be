"""What modules do with gradients when their file is run, when they are made, and when they are called."""

from __future__ import annotations

import textwrap

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged_copy

#: Statements that set `r`, by what they do.
_DOES = {
    "asks for the mode": "r = 2.0 if torch.is_grad_enabled() else 3.0",
    "asks a result": "r = 2.0 if (torch.ones(1, requires_grad=True) * 2).requires_grad else 3.0",
    "computes with gradients": (
        "with torch.enable_grad():\n    w = torch.ones(1, requires_grad=True)\n"
        "    r = torch.autograd.grad((w * 3).sum(), w)[0].item()"
    ),
    "computes without": "with torch.no_grad():\n    r = (torch.ones(1, requires_grad=True) * 2).item()",
    "sets the mode": "torch.set_grad_enabled(not torch.is_grad_enabled())\nr = 2.0",
}
_TRAINS = (
    "w = nn.Parameter(torch.ones(1))\n(w * 3).sum().backward()\n"
    "torch.optim.SGD([w], lr=0.5).step()\nr = float(w.detach())"
)
_PLACES = ("the file", "the constructor", "the call")


def _copy(processes: ForkedJudges, place: str, does: str, *, before: str = "") -> str:
    """The verdict of a copy, with its message."""
    pre, init, forward = "r = 1.0\n", "self.r = r", "return x * self.r"
    if place == "the file":
        pre = f"{does}\n"
    elif place == "the constructor":
        init = f"{does}\nself.r = r"
    else:
        forward = f"{does}\nreturn x * r"
    row = judged_copy(processes, forward, init, pre=before + pre, timed_calls=3)
    return str(row["verdict"]) if row["verdict"] == "accepted" else f"{row['verdict']}: {row['message']}"


@pytest.mark.parametrize("before", ["", "torch.set_grad_enabled(False)\n"], ids=["", "without gradients"])
@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("does", _DOES)
def test_a_copy_is_accepted(processes: ForkedJudges, does: str, place: str, before: str) -> None:
    """Reference and candidate see the same mode everywhere."""
    assert _copy(processes, place, _DOES[does], before=before) == "accepted"


@pytest.mark.parametrize("place", _PLACES)
def test_a_module_may_train(processes: ForkedJudges, place: str) -> None:
    """As some do that solve for their weights; where there are no gradients they have to be asked for."""
    asked = f"with torch.enable_grad():\n{textwrap.indent(_TRAINS, '    ')}"
    assert _copy(processes, place, asked) == "accepted"
    verdict = _copy(processes, place, _TRAINS)
    assert verdict == "accepted" if place == "the file" else "does not require grad" in verdict
