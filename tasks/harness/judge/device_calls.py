"""The judge's own work on a device around a call: inputs, flush, start, end and the copy of the output.

A device runs the kernels of one process at a time. So the judge enqueues, as one batch on its own stream: copy the
inputs to memory that the worker can see, empty the caches, event, release the worker, wait for the worker's number,
event, copy the output, event. No kernel of the worker can run between the first copy and the release, whatever it has
prepared, and none between the worker's number and the copy of the output. The time between the first two events holds
the kernel, two changes of the process on the device, and nothing that the worker does itself. So every call has the
same cost to subtract, however large its inputs are, and a worker cannot leave any of it out.

Launching all that takes the judge's host longer than a change of process takes. While its stream is empty, the worker
could have the device. So a block at the beginning of the stream holds everything back until all of it is enqueued. The
driver loads a kernel when it is first launched, and waits for the device then: behind the block that would never end.
So every kernel of the judge's has been launched once before (`Measured.of_device`).

Before a submission is loaded, `calibration.keeps_turns` tries whether two processes can compute at once.

Two things are left to a worker: its own processor, and work that it keeps on the device across the batch. Both are
seen (`Marked.exclusive`).


The copies and the flush are kernels, not copies by the device's copy engines, which work beside other processes.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from tasks.harness.shared.arenas import PAGE_BYTES, Arena, aligned
from tasks.harness.shared.call_flags import FINISHED_AT, FLAGS_BYTES, RELEASED_AT, CallFlags
from tasks.harness.shared.cuda_driver import Driver, DriverError
from tasks.harness.shared.device_memory import device_bytes, flush_size
from tasks.harness.shared.values import Packed, Placed

from .activity import Activity, Look

#: The judge gets the device within this time, unless the worker has work on it. On an H100 a change of processes takes
#: 0.15 ms; a process that has work keeps the device for 2 ms.
_FREE_NS = 500_000
#: A batch takes at most this multiple of what the flush suggests, and this much beside. Else it was interrupted.
_BATCH_FACTOR = 3.0
_BATCH_EXTRA_NS = 500_000
#: The copy of an output takes at most this multiple of what is usual, and this much beside, also for each tensor. What
#: is above counts as the kernel's.
_COPY_FACTOR = 2.0
_COPY_EXTRA_NS = 20_000
_COPY_TENSOR_NS = 5_000
#: The device runs for so long before the first measurement: clocks rise with work.
_WARM_UP_NS = 300_000_000
_WORD = torch.int64
#: In bytes. torch chooses a kernel by the alignment of the less aligned operand; above the last one it has one kernel.
_ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64)
#: Cycles of a kernel with which the judge keeps the device: 0.2 to 0.4 ms, less than a process's share of time.
_HOLD_CYCLES = 400_000


@dataclass(frozen=True, kw_only=True)
class Part:
    """One tensor of an output, where the worker says that it is. An empty handle means the memory for inputs."""

    handle: bytes
    offset: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Output:
    """The memory of an output, and the judge's copy of it."""

    copy: torch.Tensor
    #: The worker's bytes of each part that has any, and where they begin in the copy.
    views: Sequence[torch.Tensor]
    starts: Sequence[int]
    #: What has been mapped for it, by handle.
    mapped: Mapping[bytes, range]
    #: Bytes of every part.
    sizes: Sequence[int]

    @property
    def parts(self) -> list[torch.Tensor]:
        """The copy of every part."""
        starts = accumulate(map(aligned, self.sizes), initial=0)
        return [self.copy[start : start + size] for start, size in zip(starts, self.sizes, strict=False)]


@dataclass(frozen=True, kw_only=True)
class Marked:
    """The span of one call."""

    outside_ns: int
    #: Whether the worker used neither a processor nor the device from before the inputs were there until the end.
    exclusive: bool


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is the same for all workers of a device: it is made and measured once."""

    #: What is written to empty the caches.
    l2: torch.Tensor
    #: How long that takes, and how long the judge keeps the device, in nanoseconds.
    flush_ns: float
    hold_ns: float

    @classmethod
    def of_device(cls, flush_bytes: int | None) -> Measured:
        """Let the clocks of the current device rise, load kernels, and measure.

        Needs no worker: others may make their contexts meanwhile. `flush_bytes`: see `flush_size`.
        """
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch lacks it
        nbytes = flush_size(flush_bytes, torch.cuda.get_device_properties("cuda"))
        l2 = torch.empty(nbytes // _WORD.itemsize, dtype=_WORD, device="cuda")
        _load_copies()
        flush_ns = hold_ns = math.inf
        until = time.monotonic_ns() + _WARM_UP_NS
        while math.isinf(hold_ns) or time.monotonic_ns() < until:
            # The least: low clocks and other processes only make them longer.
            flush_ns = min(flush_ns, _time_of(lambda: _flush(l2)))
            hold_ns = min(hold_ns, _time_of(_hold))
        return cls(l2=l2, flush_ns=flush_ns, hold_ns=hold_ns)


def _time_of(work: Callable[[], None]) -> float:
    """How long the device takes for enqueued work, in nanoseconds."""
    events: Any = torch.cuda.Event
    began, ended = events(enable_timing=True), events(enable_timing=True)
    began.record()
    work()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) * 1e6


def _flush(l2: torch.Tensor) -> None:
    """Enqueue a write that empties the caches."""
    l2.fill_(1)


def _hold() -> None:
    """Keep the device for a while."""
    torch.cuda._sleep(_HOLD_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001 torch lacks both


class DeviceCalls:
    """The judge's side of calls on the current device; DriverError: it cannot do it.

    `flags`: a page that the worker's device sees, too; `activity`: of the worker's processes.
    """

    def __init__(self, flags: CallFlags, activity: Activity, measured: Measured) -> None:
        self._flags = flags
        self._activity = activity
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch lacks it
        # Makes the context current in this thread.
        torch.cuda.synchronize()
        self._driver = Driver.open()
        self._pointer = self._driver.register(flags.address, FLAGS_BYTES)
        self.measured = measured
        #: A number that holds the judge's own stream until it is set. No other process sees it.
        self._start = Arena.create(PAGE_BYTES)
        self._start.close()
        self._start_pointer = self._driver.register(self._start.addresses.start, PAGE_BYTES)
        self._arena = range(0)
        self._handle = b""
        #: Memory for inputs that became too small. The worker lets go of it with its next call.
        self._retired = range(0)
        events: Any = torch.cuda.Event
        self._began, self._released, self._ended, self._copied = (events(enable_timing=True) for _ in range(4))
        #: Whether the judge keeps the device after the release of the next call.
        self.holds = False
        #: Of the last call: what the worker's threads were doing, whether the device was free, bytes of inputs.
        self._look: Look | None = None
        self._was_free = False
        self._input_bytes = 0

    @property
    def arena_handle(self) -> bytes:
        """The handle of the memory for inputs."""
        return self._handle

    def reserve(self, nbytes: int) -> None:
        """Make room for inputs.

        Raises:
            DriverError: the device has too little memory.
        """
        if nbytes <= len(self._arena):
            return
        self._free_retired()
        # The driver cannot take what torch keeps for later.
        torch.cuda.empty_cache()
        arena = self._driver.allocate(nbytes)
        try:
            handle, _ = self._driver.export(arena.start)
        except DriverError:
            self._driver.free(arena.start)
            raise
        self._retired, self._arena, self._handle = self._arena, arena, handle

    def open_output(self, parts: Sequence[Part]) -> Output:
        """Map the memory of an output.

        Raises:
            DriverError: a handle is none.
            ValueError: a part does not lie in its memory.
        """
        mapped = {b"": self._arena}
        try:
            for handle in {part.handle for part in parts if part.nbytes}:
                if handle:
                    mapped[handle] = self._driver.open_handle(handle)
            views = [device_bytes(mapped[part.handle], part.offset, part.nbytes) for part in parts if part.nbytes]
        except BaseException:
            self._close(mapped)
            raise
        starts = list(accumulate((aligned(part.nbytes) for part in parts), initial=0))
        return Output(
            copy=torch.empty(starts.pop(), dtype=torch.uint8, device="cuda"),
            views=views,
            starts=[start for start, part in zip(starts, parts, strict=True) if part.nbytes],
            mapped=mapped,
            sizes=[part.nbytes for part in parts],
        )

    def inputs(self, placed: Sequence[Placed]) -> list[torch.Tensor]:
        """The memory for inputs at these places."""
        return [device_bytes(self._arena, at.offset, at.nbytes) for at in placed]

    def release(self, packed: Packed, placed: Sequence[Placed], call: int) -> None:
        """Enqueue all of a call up to its end. It waits for `start`."""
        stream = int(torch.cuda.current_stream().cuda_stream)
        copies = self._copies(packed, placed)
        torch.cuda.synchronize()
        self._free_retired()
        self._driver.wait_for(stream, self._start_pointer, call)
        self._began.record()
        for source, target in copies:
            _copy(source, target)
        _flush(self.measured.l2)
        self._released.record()
        self._driver.write(stream, self._pointer + RELEASED_AT, call)
        if self.holds:
            _hold()
        self._driver.wait_for(stream, self._pointer + FINISHED_AT, call)
        self._ended.record()
        self._input_bytes = packed.nbytes

    def copy_output(self, output: Output) -> None:
        """Enqueue the copy of an output, in a secret order: what its memory holds when the end has passed."""
        copies = list(zip(output.views, output.starts, strict=True))
        secrets.SystemRandom().shuffle(copies)
        for view, start in copies:
            _copy(view, output.copy[start : start + view.numel()])
        self._copied.record()

    def start(self, call: int) -> None:
        """Let a call begin, now that all of its work is enqueued."""
        self._look = self._activity.look()
        self._start.words()[0] = call
        start = time.perf_counter_ns()
        self._began.synchronize()
        self._was_free = time.perf_counter_ns() - start < _FREE_NS

    def finished(self) -> bool:
        """Whether the end has passed."""
        return bool(self._ended.query())  # torch lacks it

    def let_go(self, call: int) -> None:
        """Unblock the streams of both processes, whatever has become of the call."""
        self._start.words()[0] = call
        self._flags.release(call)
        self._flags.finish(call)

    def marked(self, output: Output) -> Marked:
        """The span of the call that has finished, and whose output has been copied."""
        idle = self._activity.idle_since(self._look)
        batch_ns = self._began.elapsed_time(self._released) * 1e6
        whole = batch_ns <= _BATCH_FACTOR * self._expected_ns(self._input_bytes, flushes=1) + _BATCH_EXTRA_NS
        copied_ns = self._ended.elapsed_time(self._copied) * 1e6
        expected_ns = _COPY_FACTOR * self._expected_ns(output.copy.numel())
        most_ns = expected_ns + _COPY_EXTRA_NS + _COPY_TENSOR_NS * len(output.views)
        return Marked(
            outside_ns=round(self._released.elapsed_time(self._ended) * 1e6 + max(copied_ns - most_ns, 0.0)),
            exclusive=idle and self._was_free and whole,
        )

    def _expected_ns(self, nbytes: int, *, flushes: int = 0) -> float:
        """How long so many flushes and a copy of so many bytes take. A flush writes, a copy reads, too."""
        return self.measured.flush_ns * (flushes + 2 * nbytes / max(self.measured.l2.nbytes, 1))

    def close_output(self, output: Output) -> None:
        """Wait for the copy, and let go of the worker's memory. Then the judge has all of the output.

        Raises:
            RuntimeError: the device failed.
        """
        torch.cuda.synchronize()
        self._close(output.mapped)

    def close(self) -> None:
        """Close the files. The device's memory goes with the process, or with `free`."""
        self._activity.close()
        for address in (self._flags.address, self._start.addresses.start):
            with suppress(DriverError):
                self._driver.unregister(address)

    def free(self) -> None:
        """Free the memory for inputs, once the worker that has mapped it is gone."""
        for addresses in (self._retired, self._arena):
            if len(addresses):
                with suppress(DriverError):
                    self._driver.free(addresses.start)
        self._retired = self._arena = range(0)

    def _close(self, mapped: Mapping[bytes, range]) -> None:
        for handle, addresses in mapped.items():
            if handle:
                self._driver.close_handle(addresses.start)

    def _free_retired(self) -> None:
        if len(self._retired):
            self._driver.free(self._retired.start)
            self._retired = range(0)

    def _copies(self, packed: Packed, placed: Sequence[Placed]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The copies to the memory for inputs: sources and targets."""
        pairs = zip(packed.storages, self.inputs(placed), strict=True)
        return [(source, target) for source, target in pairs if target.numel()]


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Enqueue a copy of bytes as a kernel, by words where both are aligned."""
    words = source.numel() // _WORD.itemsize if (source.data_ptr() | target.data_ptr()) % _WORD.itemsize == 0 else 0
    split = words * _WORD.itemsize
    if words:
        _launch(source[:split].view(_WORD), target[:split].view(_WORD))
    if split < source.numel():
        _launch(source[split:], target[split:])


def _launch(source: torch.Tensor, target: torch.Tensor) -> None:
    torch.bitwise_or(source, 0, out=target)


def _load_copies() -> None:
    """Launch every kernel once that a copy may need."""
    room = 4 * _ALIGNMENTS[-1]
    # Room for both, at the alignment of an allocation.
    source, target = torch.zeros(2, 2 * room, dtype=torch.uint8, device="cuda")
    for alignment in _ALIGNMENTS:
        for dtype in {torch.uint8, _WORD} if alignment % _WORD.itemsize == 0 else {torch.uint8}:
            _launch(*(each[alignment : alignment + room].view(dtype) for each in (source, target)))
