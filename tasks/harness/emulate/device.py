"""The emulated device, as `torch.cuda` describes it: one device, whose streams run everything in order and at once.

Events read the host's clock, so the time between two events is the processor's.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import torch

from .errors import EmulationError
from .mode import CUDA

NAME: Final = "CUDA, emulated on the CPU"
#: Programs choose code paths by it. The oldest capability with bfloat16 and asynchronous copies.
CAPABILITY: Final = (8, 0)


def _nothing(*_: object, **__: object) -> None:
    """Do nothing: all work has ended."""


class Event:
    """torch.cuda.Event: a moment on the host's clock."""

    def __init__(
        self,
        enable_timing: bool = False,  # noqa: FBT001, FBT002 torch's signature
        blocking: bool = False,  # noqa: FBT001, FBT002 same
        interprocess: bool = False,  # noqa: FBT001, FBT002 same
        external: bool = False,  # noqa: FBT001, FBT002 same
    ) -> None:
        if interprocess:
            raise EmulationError("an event between processes needs a CUDA device; this one is emulated on the CPU")
        self._timed = enable_timing
        self._at_ns: int | None = None
        self.blocking, self.external, self.device = blocking, external, CUDA

    def record(self, stream: Stream | None = None) -> None:  # noqa: ARG002 there is nothing to wait for in any stream
        """Note the time."""
        self._at_ns = time.perf_counter_ns()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds until another event.

        Raises:
            ValueError: either was made without `enable_timing=True`, or has not been recorded, as on a device.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_ns is None or end_event._at_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at_ns - self._at_ns) / 1e6

    def query(self) -> bool:
        """Whether it has ended: always."""
        return True

    synchronize = wait = _nothing


class Stream:
    """torch.cuda.Stream: work has run when the call that adds it returns."""

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:  # noqa: ARG002 torch's signature
        self.device, self.priority, self.cuda_stream = CUDA, priority, 0

    def query(self) -> bool:
        """Whether everything in it has ended: always."""
        return True

    synchronize = wait_event = wait_stream = _nothing

    def record_event(self, event: Event | None = None) -> Event:
        """Note the time in an event."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Self:
        return self

    __exit__ = _nothing


#: The default stream. All streams are alike.
DEFAULT_STREAM: Final = Stream()


class Generator(torch.Generator):
    """torch.Generator, also for the device: its numbers are the CPU's, not those a CUDA device would draw."""

    def __new__(cls, device: object = "cpu") -> Self:
        generator = super().__new__(cls, "cpu")  # type: ignore[call-arg]  # torch says less than it takes
        place = torch.device(device) if isinstance(device, str | torch.device | int) else torch.device("cpu")
        generator._place = CUDA if place.type == "cuda" else place
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # read-only there, too
        """The device it was made for."""
        return self._place

    _place: torch.device


@dataclass(frozen=True, kw_only=True)
class Properties:
    """torch.cuda.get_device_properties: programs compute their launches from it."""

    total_memory: int
    name: str = NAME
    major: int = CAPABILITY[0]
    minor: int = CAPABILITY[1]
    multi_processor_count: int = os.cpu_count() or 1
    warp_size: int = 32
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = 163 << 10
    shared_memory_per_multiprocessor: int = 164 << 10
    L2_cache_size: int = 40 << 20
    gcnArchName: str = ""  # noqa: N815 torch's name
    is_integrated: bool = False
    is_multi_gpu_board: bool = False


def memory_in_use() -> int:
    """Bytes of this process's memory, tensors included."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def sleep_cycles(cycles: int) -> None:
    """torch.cuda._sleep: keep the device busy, here for as many nanoseconds as there are cycles."""
    until = time.perf_counter_ns() + cycles
    while time.perf_counter_ns() < until:
        pass
