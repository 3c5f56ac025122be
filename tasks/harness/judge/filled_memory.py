"""Fills memory of a device as a task's generate_input allocates it.

A task's torch.empty goes to the worker as it is. Torch keeps freed blocks for later tensors. Such a block may hold data
that the judge has freed, such as the reference's output. On the CPU `guard_heap` does the same through the C library.
Memory that other processes have freed is no matter for this: drivers clear it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN: Any = torch.ops.aten
#: The operations that return memory as it was. Others call them inside, and write what they return.
_UNWRITTEN = frozenset(
    {
        _ATEN.empty.memory_format,
        _ATEN.empty_like.default,
        _ATEN.empty_permuted.default,
        _ATEN.empty_strided.default,
        _ATEN.new_empty.default,
        _ATEN.new_empty_strided.default,
        _ATEN.resize_.default,
    }
)


class FilledMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch lacks it
    """While it is entered, no operation returns memory of a device that holds what was there before."""

    def __init__(self, *, on_cpu: bool = False) -> None:
        """`on_cpu`: fill memory of the CPU, too, for tests."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch lacks it
        self._on_cpu = on_cpu
        #: Not zero, so that a task that reads memory before it writes it is noticed.
        self._byte = os.urandom(1)[0] | 1

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do the operation."""
        # What a tensor held before it grew is not overwritten.
        kept = args[0].untyped_storage().nbytes() if func is _ATEN.resize_.default else 0
        tensor = func(*args, **(kwargs or {}))
        if (
            func in _UNWRITTEN
            and isinstance(tensor, torch.Tensor)
            and (self._on_cpu or tensor.device.type not in {"cpu", "meta"})
        ):
            storage = tensor.untyped_storage()
            if storage.nbytes() > kept:
                whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
                whole[kept:].fill_(self._byte)
        return tensor
