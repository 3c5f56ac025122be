"""Entries of a state_dict of every kind: lazy, expanded, sparse, quantised, of rare dtypes, of inference mode."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, judged_copy, pair

_HERE = Path(__file__).parent
_DTYPES = sorted({str(kind) for kind in vars(torch).values() if isinstance(kind, torch.dtype)})
#: Statements of the constructor, by what the entry is.
_BUFFERS = {
    "expanded": "torch.ones(1).expand(16)",
    "expanded in one dimension": "torch.arange(4.0).reshape(4, 1).expand(4, 4)",
    "overlapping": "torch.arange(10.0).unfold(0, 3, 1)",
    "sparse": "torch.eye(16).to_sparse()",
    "compressed": "torch.eye(16).to_sparse_csr()",
    "quantised": "torch.quantize_per_tensor(torch.ones(16), 0.1, 0, torch.qint8)",
    "conjugated": "torch.ones(16, dtype=torch.complex64).conj()",
    "empty": "torch.empty(0, 3)",
    "nothing": "None",
    "without memory": "torch.ones(16, device='meta')",
    "of one number": "torch.tensor(3)",
    "not contiguous": "torch.rand(4, 4).t()",
    **{name: f"torch.zeros(64, dtype=torch.uint8).view({name})" for name in _DTYPES},
}


@pytest.mark.parametrize("first", range(0, len(_BUFFERS), 8))
def test_buffers_of_every_kind(processes: ForkedJudges, first: int) -> None:
    """A copy is accepted where the reference can be made, and else the reference is invalid with a sentence."""
    for name, text in list(_BUFFERS.items())[first : first + 8]:
        row = judged_copy(processes, "return x + 1", f"self.register_buffer('m', {text})", timed_calls=0)
        assert row["verdict"] in ("accepted", "invalid"), (name, row)
        assert row["message"], name
        if name.startswith("torch.float8") or name in ("expanded", "sparse", "torch.bits8"):
            assert row["verdict"] == "accepted", (name, row)


def test_a_buffer_of_inference_mode(processes: ForkedJudges) -> None:
    """It cannot be written to, and need not be."""
    init = "with torch.inference_mode():\n    m = torch.ones(16)\nself.register_buffer('m', m)"
    assert judged_copy(processes, "return x * self.m", init)["verdict"] == "accepted"


def test_a_lazy_part_that_is_not_used(processes: ForkedJudges) -> None:
    """Entries that only the candidate has are not its fault."""
    reference, code = ((_HERE / f"lazy_{name}.txt").read_text() for name in ("reference", "candidate"))
    (row,) = judged(processes, reference, code)
    assert row["verdict"] == "accepted", row


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return self.l(x)", "self.l = nn.LazyLinear(4)"),
        ("return self.b(self.l(x))", "self.l = nn.LazyLinear(4)\nself.b = nn.LazyBatchNorm1d()"),
        ("return self.l(x)", "self.l = nn.LazyLinear(4)\nself.unused = nn.LazyLinear(4)"),
    ],
)
def test_lazy_parts_that_are_used(processes: ForkedJudges, forward: str, init: str) -> None:
    """One call gives both sides the same weights; with shifted ones a candidate that leaves them out is wrong."""
    reference, copy = pair(forward, init)
    right, wrong = judged(processes, reference, copy, copy.replace("self.l(x)", "(self.l(x) * 1.01)"))
    assert (right["verdict"], right["weights"], right["perturbed"]) == ("accepted", "state_dict", True), right
    assert wrong["verdict"] == "wrong_answer", wrong


_TWO = "self.a = {}(nn.Linear(16, 16))\nself.b = {}(nn.Linear(16, 4))"


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "end"),
    [
        ("", "torch.compile", ""),
        ("torch.compile", "", ""),
        ("", "torch.jit.script", ""),
        ("", "", "_Made = ModelNew\ndef ModelNew():\n    return torch.compile(_Made())\n"),
    ],
)
def test_weights_of_compiled_parts(processes: ForkedJudges, of_reference: str, of_candidate: str, end: str) -> None:
    """They have the names that they have without: a candidate gets them, in whichever order it makes its parts."""
    forward = "return self.b(self.a(x))"
    reference, _ = pair(forward, _TWO.format(of_reference, of_reference))
    _, candidate = pair(forward, "\n".join(reversed(_TWO.format(of_candidate, of_candidate).splitlines())))
    (row,) = judged(processes, reference, candidate + end, timed_calls=0)
    assert (row["verdict"], row["weights"], row["perturbed"]) == ("accepted", "state_dict", True), row
