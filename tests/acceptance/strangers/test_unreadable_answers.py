"""Whatever a submission returns, the judge can read what the worker says of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.shared.values import Outgoing, check_tree
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.support.waiting import PATIENCE_S

_WORD = st.integers(-(1 << 63), (1 << 63) - 1)
_KINDS = ("cpu", "cuda", "meta", "mps", "xpu", "hpu", "mtia", "vulkan", "privateuseone")
_DEVICES = st.builds(torch.device, st.sampled_from(_KINDS)) | st.builds(
    torch.device, st.sampled_from(_KINDS[:3]), st.integers(0, 100)
)
_DTYPES = st.sampled_from([each for each in vars(torch).values() if isinstance(each, torch.dtype)])
_EMPTY = st.integers(0, (1 << 63) - 1).map(lambda size: torch.empty(0, size))
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters()),
    st.binary(),
    _DEVICES,
    _DTYPES,
    st.lists(_WORD, max_size=3).map(torch.Size),
    st.sampled_from([np.float32(1), np.bool_(True), np.datetime64("2020"), np.longdouble(1), np.ones(2), np.str_("a")]),
    st.sampled_from([torch.ones(2), torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.strided, object]),
    _EMPTY,
)


def _containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.text(st.characters()) | st.integers()
    return (
        st.lists(parts, max_size=4) | st.lists(parts, max_size=4).map(tuple) | st.dictionaries(keys, parts, max_size=4)
    )


@given(st.recursive(_LEAVES, _containers, max_leaves=8))
def test_what_a_worker_says_of_a_value_is_read(value: object) -> None:
    """The judge takes every description that the worker's own code makes."""
    check_tree(json.loads(json.dumps(Outgoing.describe(value, {}).tree)))


@pytest.mark.parametrize(
    "value",
    [
        "torch.device('cuda:7')",
        "torch.device('meta')",
        "torch.Size([-1, 1 << 50])",
        "torch.empty(0, 1 << 50)",
        "torch.empty(1 << 60, 0)",
        "torch.nested.nested_tensor([data])",
        "[data, torch.nested.nested_tensor([data])]",
        "'\\ud800'",
    ],
)
def test_it_is_a_wrong_answer(processes: ForkedJudges, value: str) -> None:
    """The check says so, or the judge, and nothing is said of tampering."""
    request = JudgeRequest(
        modes=(ModeRequest(name="test", cases=("size: 8; seed: 1",), timeout_s=PATIENCE_S),),
        files={
            "reference.py": "import torch\n"
            "def generate_input(size, seed):\n    return torch.ones(size)\n"
            "def check_implementation(data, output):\n"
            "    return '' if isinstance(output, torch.Tensor) and torch.equal(output, data) else 'other numbers'\n"
        },
        worker_files=(),
        submission_name="submission.py",
        submission=f"import torch\ndef custom_kernel(data):\n    return {value}\n",
    )
    verdict, message = processes.verdict(request)
    assert verdict == "wrong_answer", message
