"""Memory of a device: bytes at an address, what is kept for later tensors, and what to write to empty the caches."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import torch

_L2_FLUSH_BYTES = 256 << 20


def release_memory() -> None:
    """Give back to the device what this process keeps for later tensors. Other processes can then use it."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch lacks it
        # Of a device that has failed, the next call says so.
        with suppress(RuntimeError):
            torch.cuda.empty_cache()


def flush_size(stated: int | None, properties: Any) -> int:
    """Bytes to write so that nothing of the inputs is left in a device's caches.

    `stated` by the GPU type; else twice the size of the L2 cache by the driver, and at least a size that is larger than
    most caches. Never more than an eighth of the device's memory.
    """
    derived = max(_L2_FLUSH_BYTES, 2 * int(getattr(properties, "L2_cache_size", 0) or 0))
    size = derived if stated is None else stated
    return min(size, int(properties.total_memory) // 8)


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
