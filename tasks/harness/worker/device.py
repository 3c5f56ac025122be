"""Calls on a CUDA device: its caches, its events, and calls that are enqueued before their inputs exist."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

import torch

from tasks.harness.emulate import asked
from tasks.harness.shared.arenas import Arena
from tasks.harness.shared.cuda_driver import Driver, DriverError, try_out
from tasks.harness.shared.device_memory import flush_size

from .stream_block import QueuedCall, StreamBlock, StreamCall

#: Synchronising with a device that is idle takes less.
_IDLE_NS = 50_000


class Device:
    """The worker's current device. Everything is opened when it is first needed."""

    def __init__(self) -> None:
        self._flush_bytes: int | None = None
        self._l2: torch.Tensor | None = None
        self._driver: Driver | None = None
        self._stream_block: StreamBlock | None = None

    def prepare(self, *, flush_bytes: int | None, page: Arena | None, tried: bool = False) -> str | None:
        """Prepare calls by flags; the reason why streams cannot wait for the page, if so. All other calls work.

        `flush_bytes`: see `flush_size`; `page`: of flags in shared memory; `tried`: whether another process of this
        container has found that streams can wait.
        """
        self._flush_bytes = flush_bytes
        if page is None:
            return "no page was given"
        if torch.version.cuda is None:
            return "this torch is not for CUDA: streams of its devices cannot wait for memory of the judge's"
        why_not = None if tried else try_out()
        if why_not is not None:
            return why_not
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]  # torch lacks it
            # Makes the context current in this thread.
            torch.cuda.synchronize()
            self._driver = Driver.open()
            self._stream_block = StreamBlock(self._driver, page)
        except (DriverError, RuntimeError) as error:
            return str(error)
        return None

    def enqueue(self, order: StreamCall, kernel: Callable[[Any], Any], *, adapt: Callable[[Any], Any]) -> QueuedCall:
        """Enqueue a call that begins when the judge's flag says so (see `stream_block`).

        Raises:
            RuntimeError: no page of flags is open.
        """
        if self._stream_block is None:
            raise RuntimeError("the judge asked for a call by flags that are not open")
        self.reset_l2()
        return self._stream_block.enqueue(order, kernel, adapt=adapt)

    def time_call(self, kernel: Callable[[Any], Any], value: object) -> tuple[object, int]:
        """Call a kernel with cold caches; its output, and its time in nanoseconds by the device's events."""
        self.reset_l2()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch lacks it
        torch.cuda.synchronize()
        # Enqueued behind the flush, so that the time of a launch is not between the events.
        self.flush_l2()
        start.record()
        output = kernel(value)
        end.record()
        end.synchronize()
        ended = perf_counter_ns()
        torch.cuda.synchronize()
        late = perf_counter_ns() - ended
        # The events see one stream. Work of other streams for this call counts, too.
        return output, round(start.elapsed_time(end) * 1e6) + (late if late > _IDLE_NS else 0)

    def flush_l2(self) -> None:
        """Enqueue a write that empties the device's caches."""
        if asked():
            # An emulated device has no cache of its own, and writing its memory is slow.
            return
        if self._l2 is None:
            nbytes = flush_size(self._flush_bytes, torch.cuda.get_device_properties("cuda"))
            self._l2 = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        self._l2.zero_()

    def reset_l2(self) -> None:
        """Undo a submission's reservation of the cache, where the driver has such reservations."""
        if self._driver is None and torch.version.cuda is not None and not asked():
            with suppress(DriverError):
                self._driver = Driver.open()
        if self._driver is not None:
            self._driver.reset_persisting_l2()
