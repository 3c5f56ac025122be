"""Memory that a task's generate_input allocates on a device never holds what the judge freed there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tasks.harness.judge import problem
from tasks.harness.judge.filled_memory import FilledMemory
from tasks.harness.judge.problem import Problem

BYTES = 1 << 14
ALLOCATE: dict[str, Callable[[], torch.Tensor]] = {
    "empty": lambda: torch.empty(BYTES, dtype=torch.uint8),
    "empty_like": lambda: torch.empty_like(torch.ones(BYTES, dtype=torch.uint8)),
    "empty_strided": lambda: torch.empty_strided((BYTES // 2, 2), (2, 1), dtype=torch.uint8),
    "empty_permuted": lambda: torch.empty_permuted((2, BYTES // 2), (1, 0), dtype=torch.uint8),
    "new_empty": lambda: torch.ones(1, dtype=torch.uint8).new_empty(BYTES),
    "new_empty_strided": lambda: torch.ones(1, dtype=torch.uint8).new_empty_strided((BYTES,), (1,)),
    "a constructor of old": lambda: torch.ByteTensor(BYTES),
    "resize_": lambda: torch.ones(0, dtype=torch.uint8).resize_(BYTES),
    "another type": lambda: torch.empty(BYTES // 2, dtype=torch.bfloat16).view(torch.uint8),
    "a type without arithmetic": lambda: torch.empty(BYTES, dtype=torch.float8_e4m3fn).view(torch.uint8),
}


@pytest.mark.parametrize("name", ALLOCATE)
def test_no_allocation_shows_what_was_there_before(name: str) -> None:
    """Every way that torch has to allocate without writing."""
    with FilledMemory(on_cpu=True):
        found = ALLOCATE[name]()
    assert found.numel() == BYTES
    (value,) = set(found.flatten().tolist())
    assert value != 0


def test_what_is_written_stays_and_memory_of_the_cpu_is_left_to_the_c_library() -> None:
    """Results of other operations, and what a tensor held before it grew; filling memory of the CPU only takes time."""
    with FilledMemory(on_cpu=True):
        assert torch.equal(torch.arange(4) * 2, torch.tensor([0, 2, 4, 6]))
        assert bool((torch.randn(100, generator=torch.Generator().manual_seed(1)).abs() < 10).all())
        grown = torch.ones(16, dtype=torch.uint8).resize_(32)
        assert grown[:16].tolist() == [1] * 16
        assert grown[16:].tolist() == [int(grown[16])] * 16
        assert grown[16] != 0
        assert torch.empty(0).numel() == 0
    with FilledMemory():
        kept = torch.zeros(8).resize_(4).resize_(8)
    assert kept.tolist() == [0] * 8


def test_inputs_are_made_in_it_where_there_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is not: a reference allocates on every call, and nothing of it reaches a worker."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: None)
    monkeypatch.setattr(problem, "FilledMemory", lambda: FilledMemory(on_cpu=True))

    task = Problem(
        generate=lambda: torch.empty(BYTES, dtype=torch.uint8),
        check=lambda *_: torch.utils._python_dispatch._get_current_dispatch_mode() is None,
        reference=None,
        modules=frozenset(),
    )
    made = task.generate({}, rng_seed=None)
    assert isinstance(made, torch.Tensor)
    assert bool((made == made[0]).all())
    assert made[0] != 0
    assert task.check(None, None) == (True, "")
