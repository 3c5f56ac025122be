"""The worker's side of a call on a device: everything is enqueued before the inputs exist, then the judge releases it.

One stream holds, in this order: wait for the judge's number, event, the kernel, event, write the number that says so.
The inputs are device memory of the judge's. The judge fills it, empties the caches and writes the number in one piece
of work of its own, and copies the output itself (`judge.device_calls`). So the worker has nothing to leave out, and the
host's work for a launch is done before the clock starts.

A submission that synchronises with the host waits for a stream that is blocked. The judge gets no answer, releases the
call after a while, and knows that the host took part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tasks.harness.shared.arenas import Arena
from tasks.harness.shared.call_flags import FINISHED_AT, FLAGS_BYTES, RELEASED_AT
from tasks.harness.shared.cuda_driver import Driver, DriverError
from tasks.harness.shared.device_memory import device_bytes
from tasks.harness.shared.values import Outgoing, unpack


@dataclass(frozen=True, kw_only=True)
class StreamCall:
    """A call that the judge asks for."""

    call: int
    tree: Any
    storages: Sequence[tuple[int, int]]
    #: The handle of the judge's memory for inputs.
    arena: bytes


@dataclass(kw_only=True)
class QueuedCall:
    """A call whose work is enqueued."""

    outgoing: Outgoing
    #: For each tensor of the output: handle of its allocation (empty: the judge's memory for inputs), offset, bytes.
    parts: list[tuple[bytes, int, int]]
    #: Events before and after the kernel.
    began: torch.cuda.Event
    ended: torch.cuda.Event
    #: Keeps inputs and copies of outputs alive until the next call.
    kept: list[Any] = field(default_factory=list)

    def claim_ns(self) -> int:
        """The kernel's time by the device's events. Waits for them."""
        self.ended.synchronize()
        torch.cuda.synchronize()
        return max(round(float(self.began.elapsed_time(self.ended)) * 1e6), 0)


class StreamBlock:
    """Makes calls whose stream waits for the judge. `page`: flags in shared memory."""

    def __init__(self, streams: Driver, page: Arena) -> None:
        self._streams = streams
        # Its addresses stay registered with the device, so they must not be used for anything else.
        self._page = page
        self._pointer = streams.register(page.addresses.start, FLAGS_BYTES)
        #: The judge's memory for inputs, and its handle.
        self._handle = b""
        self._arena = range(0)

    def enqueue(self, order: StreamCall, kernel: Callable[[Any], Any], *, adapt: Callable[[Any], Any]) -> QueuedCall:
        """Enqueue a call. `adapt`: makes the kernel's argument from the inputs."""
        self._enter(order.arena)
        buffers = [device_bytes(self._arena, offset, nbytes) for offset, nbytes in order.storages]
        value = adapt(unpack(order.tree, buffers))
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch lacks it
        torch.cuda.synchronize()
        stream = torch.cuda.current_stream()
        self._streams.wait_for(int(stream.cuda_stream), self._pointer + RELEASED_AT, order.call)
        began.record(stream)
        output = kernel(value)
        ended.record(stream)
        outgoing = Outgoing.describe(output, {})
        parts, copies = self._parts(outgoing)
        if outgoing.put_off or copies:
            # Work that is put off until the output is described, and copies of it, are the kernel's own.
            ended.record(stream)
        self._streams.write(int(stream.cuda_stream), self._pointer + FINISHED_AT, order.call)
        return QueuedCall(outgoing=outgoing, parts=parts, began=began, ended=ended, kept=[value, buffers, copies])

    def _enter(self, handle: bytes) -> None:
        """Map the judge's memory for inputs, if it is not the same as before."""
        if handle == self._handle:
            return
        if self._handle:
            torch.cuda.synchronize()
            self._streams.close_handle(self._arena.start)
            self._handle = b""
        self._arena = self._streams.open_handle(handle)
        self._handle = handle

    def _parts(self, outgoing: Outgoing) -> tuple[list[tuple[bytes, int, int]], list[torch.Tensor]]:
        """Where the judge finds each tensor of an output; copies of those that it could not open otherwise."""
        parts, copies = [], []
        for item in outgoing.tensors:
            if item.data_ptr() in self._arena and item.is_cuda:
                parts.append((b"", item.data_ptr() - self._arena.start, item.nbytes))
                continue
            try:
                handle, offset = self._streams.export(item.data_ptr()) if item.nbytes else (b"", 0)
            except DriverError:
                copy = torch.empty(item.nbytes, dtype=torch.uint8, device="cuda")
                copy.copy_(item.reshape(-1).view(torch.uint8), non_blocking=True)
                copies.append(copy)
                handle, offset = self._streams.export(copy.data_ptr())
            parts.append((handle, offset, item.nbytes))
        return parts, copies
