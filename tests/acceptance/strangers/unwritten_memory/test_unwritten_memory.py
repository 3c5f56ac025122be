"""References that return memory as they got it, or keep it."""

from __future__ import annotations

import pytest
import torch

from runner.extras.trainers.inside.judge.reference_module import FILL, SIGN
from tasks.harness.judge.problem import fill_heap
from tasks.harness.shared.values import DTYPES
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged_copy

_MEMORY = (
    "torch.empty(8, 16)",
    "torch.empty_like(x)",
    "torch.empty_strided((8, 16), (1, 8))",
    "x.new(8, 16)",
    "torch.FloatTensor(8, 16)",
    "torch.ones(1).resize_(8, 16)",
    "torch.empty(400, 8, 16).sum(0)",
    "torch.empty(8, 16, dtype=torch.int64)",
)
#: Of float4 torch converts none.
_WEIGHTS = [name for name in DTYPES if "float" in name and not name.startswith("float4")]
_PLACES = {
    "the output": ("return {}", ""),
    "a part of it": ("y = {}\ny[:4] = 1\nreturn y", ""),
    "an attribute": ("return x * self.m", "x = torch.ones(8, 16)\nself.m = {}"),
    "a buffer that is not saved": (
        "return x * self.m",
        "x = torch.ones(8, 16)\nself.register_buffer('m', {}, persistent=False)",
    ),
    "what the first call keeps": ("if self.m is None:\n    self.m = {}\nreturn x * self.m", "self.m = None"),
}


@pytest.mark.parametrize("memory", _MEMORY)
@pytest.mark.parametrize("place", _PLACES)
def test_a_reference_that_shows_it(processes: ForkedJudges, memory: str, place: str) -> None:
    """No copy is a wrong answer."""
    forward, init = (text.replace("{}", memory) for text in _PLACES[place])
    row = judged_copy(processes, forward, init, timed_calls=0)
    assert (row["verdict"], "memory that nothing has written" in row["message"]) == ("invalid", True), row


@pytest.mark.parametrize("name", _WEIGHTS)
@pytest.mark.parametrize("byte", [FILL, FILL | SIGN])
def test_uninitialised_weights_are_moderate_numbers(name: str, byte: int) -> None:
    """None is infinite, NaN, or so small that an output of zeros would be right."""
    try:
        fill_heap(byte)
        least, most = abs(torch.empty(2000, dtype=DTYPES[name]).double()).aminmax()
    finally:
        fill_heap(0xFF)
    assert 1 <= least <= most < 10_000 or name == "float8_e8m0fnu"
