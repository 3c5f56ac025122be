"""Device memory at an address, as torch tensors of bytes."""

from __future__ import annotations

from typing import Any

import torch


class _Memory:
    """What torch reads of memory that is not its own (CUDA array interface, version 3)."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "data": (address, False),
            "shape": (nbytes,),
            "strides": None,
            "typestr": "|u1",
            "version": 3,
        }


def device_bytes(addresses: range, offset: int, nbytes: int) -> torch.Tensor:
    """A uint8 tensor, shape (nbytes,), over a part of an allocation on the current device. It does not own the memory.

    Raises:
        ValueError: the range is not inside the allocation.
    """
    if offset < 0 or nbytes < 0 or offset + nbytes > len(addresses):
        raise ValueError(f"bytes {offset} to {offset + nbytes} are not inside an allocation of {len(addresses)}")
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8, device="cuda")
    return torch.as_tensor(_Memory(addresses.start + offset, nbytes), device="cuda")
