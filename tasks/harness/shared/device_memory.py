"""Memory of a device that a process keeps after its tensors are gone, for later ones."""

from __future__ import annotations

import gc
from contextlib import suppress

import torch


def release_memory() -> None:
    """Give back to the device what this process keeps for later tensors. Other processes can then use it."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch lacks it
        # Of a device that has failed, the next call says so.
        with suppress(RuntimeError):
            torch.cuda.empty_cache()
