"""What a call does to its inputs, as the judge's own memory shows it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runner.extras.trainers.inside.judge.clock import Clock
from runner.extras.trainers.inside.judge.side import ModuleSide
from tasks.harness.judge.worker_client import Called
from tasks.harness.shared.values import Outgoing, Packed, Snapshot, unpack

_ANSWER = torch.ones(2)


class _Client:
    """A worker that changes its inputs, or does not."""

    def __init__(self, change: Callable[[torch.Tensor], object]) -> None:
        self._change = change
        #: The memory of the last call's inputs.
        self.storages: list[torch.Tensor] = []

    def call(self, packed: Packed, *, keeps_inputs: bool, **_: object) -> Called:
        """One call."""
        self.storages = [storage.clone() for storage in packed.storages]
        for storage in self.storages:
            self._change(storage)
        output = Snapshot(Outgoing.describe(_ANSWER, {}).tree, [_ANSWER.view(torch.uint8)])
        return Called(
            output=output,
            output_bytes=8,
            parts=1,
            ended_ns=1,
            claim_ns=1,
            outside_ns=1,
            left=(lambda: unpack(packed.tree, self.storages)) if keeps_inputs else None,
        )


@pytest.mark.parametrize("changes", [False, True])
def test_inputs_that_are_put_back_after_a_timed_call_have_been_changed(*, changes: bool) -> None:
    """The judge looks when the call is over, and needs no further word or time of the worker's."""
    client: Any = _Client(lambda storage: storage.zero_() if changes else None)
    reference: Any = SimpleNamespace(inputs=lambda _: [torch.ones(3), {"more": torch.arange(4)}], usual_ns=0)
    side = ModuleSide(client, reference, control=None, subject="the candidate", clock=Clock(60.0))
    seen: list[list[torch.Tensor] | None] = []
    side.checker = lambda _, __, ___, changed: seen.append(changed)
    side.call({"seed": 1}, rng_seed=None, output_capacities=(), deadline_ns=0)
    for storage in client.storages:
        storage.fill_(1)
    side.check(deadline_ns=0)
    (changed,) = seen
    assert (changed is not None) is changes
    assert changed is None or [item.tolist() for item in changed] == [[0.0] * 3, [0] * 4]
