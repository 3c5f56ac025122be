"""The worker's side of a call on a device: everything is enqueued before the inputs exist, then the judge releases it.

One stream holds, in this order: wait for the judge's number, copy the inputs from shared memory, flush the cache,
event, the kernel, event, copy the output to shared memory, write the number that says so. So the host's work for a
launch is done before the judge's clock starts, and nothing can be computed early.

A submission that synchronises with the host waits for a stream that is blocked. The judge gets no answer, releases the
call after a while, and measures that call with the host's work in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from tasks.harness.shared.arenas import PAGE_BYTES, Arena
from tasks.harness.shared.call_flags import FINISHED_AT, RELEASED_AT, CallFlags
from tasks.harness.shared.values import Outgoing, unpack

#: Synchronising with a device that is idle takes less.
IDLE_NS = 50_000


class Streams(Protocol):
    """The part of `cuda_driver.Driver` that is needed here."""

    def register(self, address: int, nbytes: int) -> int:
        """See Driver."""

    def unregister(self, address: int) -> None:
        """See Driver."""

    def wait_for(self, stream: int, pointer: int, value: int) -> None:
        """See Driver."""

    def write(self, stream: int, pointer: int, value: int) -> None:
        """See Driver."""


@dataclass(frozen=True, kw_only=True)
class StreamCall:
    """One call, as the judge asks for it."""

    call: int
    tree: Any
    storages: Sequence[tuple[int, int]]
    device: str
    inputs: Arena
    output_arena: Arena


@dataclass(frozen=True, kw_only=True)
class StreamCallResult:
    """The output of a call, and the time that the worker claims."""

    outgoing: Outgoing
    claim_ns: int
    #: Whether the output fitted into the arena, and is there.
    delivered: bool
    #: Must live until the output has been delivered.
    inputs: tuple[object, ...]


class StreamBlock:
    """The judge's page of flags, mapped for the device."""

    def __init__(self, streams: Streams, page: Arena) -> None:
        """Register the page.

        Raises:
            DriverError: the driver refuses.
        """
        self._streams = streams
        self._flags = CallFlags(page)
        self._page = page
        self._pointer = streams.register(page.addresses.start, PAGE_BYTES)

    def make(
        self,
        order: StreamCall,
        kernel: Callable[[Any], Any],
        *,
        adapt: Callable[[Any], Any],
        flush: Callable[[], None],
    ) -> StreamCallResult:
        """Make a call.

        Args:
            order: the call that the judge asks for.
            kernel: the submission's.
            adapt: makes the kernel's arguments from the inputs.
            flush: enqueues a write that empties the device's caches; called after the wait for the judge's number.
        """
        with self._pinned(order.inputs), self._pinned(order.output_arena):
            buffers = [torch.empty(nbytes, dtype=torch.uint8, device=order.device) for _, nbytes in order.storages]
            value = adapt(unpack(order.tree, buffers))
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch lacks it
            torch.cuda.synchronize()
            stream = int(torch.cuda.current_stream().cuda_stream)
            try:
                self._streams.wait_for(stream, self._pointer + RELEASED_AT, order.call)
                for buffer, (offset, nbytes) in zip(buffers, order.storages, strict=True):
                    buffer.copy_(order.inputs.bytes_at(offset, nbytes), non_blocking=True)
                flush()
                began.record()
                output = kernel(value)
                ended.record()
                outgoing = Outgoing.describe(output, {})
                delivered = outgoing.nbytes <= order.output_arena.size
                if delivered:
                    outgoing.copy_to(order.output_arena, wait=False)
                self._streams.write(stream, self._pointer + FINISHED_AT, order.call)
            finally:
                # Also for a kernel that raised: the judge waits for this number, and gets the error in the answer.
                self._flags.enqueue(order.call)
            ended.synchronize()
            after_ns = perf_counter_ns()
            torch.cuda.synchronize()
            late_ns = perf_counter_ns() - after_ns
            # The events see one stream. Work of other streams for this call counts, too.
            claim_ns = round(began.elapsed_time(ended) * 1e6) + (late_ns if late_ns > IDLE_NS else 0)
        return StreamCallResult(outgoing=outgoing, claim_ns=claim_ns, delivered=delivered, inputs=(value, buffers))

    @contextmanager
    def _pinned(self, arena: Arena) -> Iterator[None]:
        start = arena.addresses.start
        self._streams.register(start, arena.size)
        try:
            yield
        finally:
            # If the kernel raised, the device may still be using the memory.
            torch.cuda.synchronize()
            self._streams.unregister(start)
