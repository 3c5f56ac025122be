"""Which outputs are of the form of an earlier one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from tasks.harness.shared.values import tensors_of
from tasks.harness.worker import output_form
from tasks.harness.worker.output_form import OutputForm

_WHOLE = torch.arange(12.0)
_ITEMS: dict[str, torch.Tensor] = {
    "whole": _WHOLE,
    "a further one": _WHOLE + 1,
    "parameter": torch.nn.Parameter(_WHOLE),
    "of a graph": _WHOLE.clone().requires_grad_(),
    "shorter": torch.ones(11),
    "of two dimensions": _WHOLE.view(3, 4),
    "transposed": _WHOLE.view(4, 3).T,
    "every second": torch.arange(24.0)[::2],
    "int32": torch.arange(12, dtype=torch.int32),
    "negated": torch._neg_view(_WHOLE),
    "complex": torch.complex(_WHOLE, _WHOLE),
    "conjugate": torch.complex(_WHOLE, _WHOLE).conj(),
    "sparse": _WHOLE.to_sparse(),
    "of no memory": torch.empty(12, device="meta"),
}
_OUTPUTS: dict[str, Any] = {
    **_ITEMS,
    **{f"tuple of {name}": (_WHOLE, item) for name, item in _ITEMS.items()},
    **{f"list of {name}": [item] for name, item in _ITEMS.items()},
    "longer tuple": (_WHOLE, _WHOLE, _WHOLE),
    "dict": {"a": _WHOLE},
    "dict of another key": {"b": _WHOLE},
    "nested": ({"a": [_WHOLE]}, (None, _WHOLE)),
    "nested otherwise": ({"a": [_WHOLE]}, (_WHOLE, None)),
    "nothing": None,
    "number": 1.0,
    "empty tuple": (),
}


def test_the_comparison_of_torch_says_what_ours_does() -> None:
    """It is quicker, and nothing else: no output that ours refuses has addresses, and none is refused."""
    quick = 0
    for (first, output), (second, other) in product(_OUTPUTS.items(), repeat=2):
        form = None if first == "number" else OutputForm.of(output)
        if form is None or form.matches is None:
            continue
        quick += 1
        copies: list[torch.Tensor] = []
        addresses = form.addresses(other, copies)
        expected = replace(form, matches=None).addresses(other, [])
        # Copies lie elsewhere each time.
        alike = addresses == expected or (bool(copies) and expected is not None)
        assert alike, f"{second} after {first}: {addresses}, not {expected}"
    assert quick > 12 * len(_OUTPUTS)


@pytest.mark.parametrize("output", [_WHOLE, (_WHOLE, torch.ones(2, 3)), {"a": [_WHOLE], "b": None}])
def test_usual_outputs_are_compared_in_one_step(output: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    """A submission in machine code keeps what the worker's own code takes."""
    form = OutputForm.of(output)
    assert form is not None
    monkeypatch.setattr(output_form, "_as_it_lies", None)
    assert form.addresses(output, []) == [each.data_ptr() for each in tensors_of(output)]


def test_without_a_comparison_of_torch_forms_are_compared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not one that torch has promised."""
    monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", None)
    form = OutputForm.of(_WHOLE)
    assert form is not None
    assert form.matches is None
    assert form.addresses(_WHOLE + 1, []) is not None
    assert form.addresses(torch.ones(3), []) is None
