"""What a worker may say in place of what is asked: source texts of values, for tests and for candidates.

Each is an expression over `torch` and `x`, a float32 tensor of 8 x 16.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from tasks.harness.shared.values import DTYPES, ITEM_BYTES, Outgoing, Snapshot, regions
from tasks.harness.shared.wire import WireViolation

#: A tensor of the expected shape in every dtype that can travel.
DTYPED: Mapping[str, str] = {
    name: f"torch.zeros(8, {16 * ITEM_BYTES[name]}, dtype=torch.uint8).view(torch.{name})" for name in DTYPES
}
OTHERS: Mapping[str, str] = {
    "two elements": "torch.ones(2)",
    "no elements": "torch.empty(0, 16)",
    "no dimension": "torch.tensor(1.0)",
    "sixty-four dimensions": "torch.ones((1,) * 64)",
    "NaN": "x * float('nan')",
    "infinite": "x / 0",
    "complex and infinite": "torch.full((8, 16), complex('inf'), dtype=torch.complex64)",
    "sparse": "x.to_sparse()",
    "without memory": "torch.empty(8, 16, device='meta')",
    "conjugated": "x.to(torch.complex64).conj()",
    "negated": "x.to(torch.complex64).conj().imag",
    "expanded": "x[:1].expand(8, 16)",
    "quantised": "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
    "nothing": "None",
    "a truth": "True",
    "zero": "0",
    "minus one": "-1",
    "2 to 47": "2**47",
    "2 to 63": "2**63",
    "2 to 126": "-(2**126)",
    "10 to 400": "10**400",
    "an infinite number": "float('inf')",
    "no number": "float('nan')",
    "a tiny number": "5e-324",
    "a text": "'x'",
    "half a character": "'\\ud800\\0'",
    "a long text": "'x' * 60000",
    "an empty list": "[]",
    "an empty tuple": "()",
    "an empty dict": "{}",
    "a dict": "{'state': {}, 'lazy': {}, 'out': {}, 'after': {}}",
    "a list in a list": "[[x], (x, [x, {'y': x}])]",
    "fifteen deep": "[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]",
    "forty deep": "__import__('functools').reduce(lambda value, _: [value], range(40), x)",
    "many": "[0] * 16000",
    "too many": "[0] * 20000",
    "sizes": "torch.Size([2**47, 0])",
    "a dtype": "torch.float8_e5m2",
    "a device": "torch.device('cpu')",
    "an object": "object()",
    "a set": "{1}",
}
VALUES: Mapping[str, str] = {**DTYPED, **OTHERS}


class Refused(Exception):
    """The value does not reach the judge's own code as one."""


def arrived(text: str) -> Any:  # noqa: ANN401 any value
    """What the judge has of a value that a worker returned.

    Raises:
        Refused: it cannot travel.
    """
    outgoing = Outgoing.describe(value_of(text), {})
    try:
        tree = json.loads(json.dumps(outgoing.tree))
        regions(tree, placed=(), output_bytes=outgoing.nbytes)
    except WireViolation as error:
        raise Refused from error
    copies = [item.reshape(-1).view(torch.uint8).clone() for item in outgoing.tensors]
    snapshot = Snapshot(tree, copies)
    if snapshot.opaque is not None:
        raise Refused
    return snapshot.value()


def value_of(text: str) -> Any:  # noqa: ANN401 any value
    """The value of a text."""
    return eval(text, {"torch": torch, "x": torch.rand(8, 16) + 1})  # noqa: S307 texts of this module
