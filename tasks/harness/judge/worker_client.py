"""The judge's side of the conversation with one worker: hand over inputs, measure the call, take a copy of the output.

Everything that the worker says is checked here. Whatever goes wrong on its side becomes a `Fault`. When a call is over,
`snapshots` says.
"""

from __future__ import annotations

import array
import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

import torch

from tasks.harness.shared.arenas import HUGE_PAGE_BYTES, Arena, size_for_later
from tasks.harness.shared.call_flags import DRY_BYTES, KEEPS_ORDER, MAX_PARTS, CallFlags
from tasks.harness.shared.cores import judge_core, stay_on
from tasks.harness.shared.cuda_driver import DriverError
from tasks.harness.shared.profilers import FILES, Capture, Profile, Tool
from tasks.harness.shared.values import Layout, Packed, Placed, pack, place, size_of, unpack
from tasks.harness.shared.wire import (
    MAX_FROM_WORKER_BYTES,
    MAX_TABLE_BYTES,
    Channel,
    Interrupted,
    PeerClosed,
    WireViolation,
    encode,
)

from .accelerator import raise_for_device
from .activity import Activity
from .device_calls import DeviceCalls, Measured, Output, Part
from .faults import Fault, died, expect, flooded, tampered, too_late
from .request import Compiled
from .sched_delay import SchedDelay
from .snapshots import (
    Copy,
    Pace,
    Taken,
    Unreadable,
    WorkerMemory,
    claimed,
    held,
    needed,
    take,
    take_copied,
    take_like,
    within,
)
from .worker_output import Watcher

#: How long the judge spins while it waits for the end of a call, before it sleeps in between; only on a core of its
#: own. Each sleep is this part of the time that has passed.
SPIN_NS = 25_000_000
_NAP_SHARE = 0.002
#: A worker needs less to get ready for a call. Waking up the judge would take as long again.
ASK_SPIN_NS = 1_000_000
#: Inputs of at most so many bytes are copied to where the worker sees them, while the clock runs. The worker could read
#: them as they come, so the copy must be short (1 µs for 16 KiB, 5 for 64). For larger inputs the worker gets a
#: descriptor, and maps it, which takes 25 µs more, of which machine code needs half.
COPY_BYTES = 64 << 10
#: How long a worker may take to enqueue a call. Then the call is released all the same, because a kernel that
#: synchronises waits for its blocked stream for ever. The limit is much shorter after so many such calls in a row.
ENQUEUE_NS = 100_000_000
_OFTEN = 3
#: Tensors of an output of a call that the judge's own work on a device marks. Its stream waits until all copies are
#: enqueued, and takes about a thousand.
_DEVICE_PARTS = 512
#: Bytes that a case may hold before a request says so: enough for every calibration kernel. Its volume, an eighth of
#: this, takes long enough to be told from the fixed part.
UNASKED_BYTES = 16 << 20
#: A worker that has waited for the start flag for longer sleeps in between (`FLAG_SPIN_NS`) and would begin late. So
#: the next call is announced ahead only where calls follow each other faster than this.
_SOON_NS = 10_000_000
#: After this many calls in a row after which the worker did not sleep, the judge looks whether it does in one call of
#: `_LOOK_EVERY`: looking takes time.
_AWAKE = 3
_LOOK_EVERY = 16
#: To look at more threads takes too long.
_FEW_THREADS = 16
#: If other processes had the cores for so long during a call, a spinning worker would only make it worse.
_CROWDED_NS = 500_000


@dataclass(frozen=True, kw_only=True)
class Called(Taken):
    """One finished call, and its output."""

    claim_ns: int
    #: From the release of the inputs until the call was over (see `snapshots`).
    outside_ns: int
    #: Whether it began and ended by flags in shared memory, not by messages.
    by_flags: bool = False
    #: Whether inputs that are large enough for huge pages were handed over in huge pages.
    in_huge_pages: bool = True
    #: On a device: whether the worker used no processor, and the device for nothing else (see `device_calls`).
    exclusive: bool = True
    #: How long judge and worker were ready to run, until the call was over, while other processes had the cores.
    delayed_ns: int | None = None
    #: Gives the inputs as the worker left them, over memory that it may still write, before the next call. None: they
    #: were not asked for, or the worker has copied them to a device.
    left: Callable[[], object] | None = None


@dataclass(frozen=True, kw_only=True)
class _Armed:
    """An announced call. The worker waits for the start flag; its inputs come with that."""

    call: int
    sizes: tuple[int, ...]
    placed: Sequence[Placed]
    #: Memory that the worker has mapped already, to copy the inputs to. None: the worker gets a descriptor.
    arena: Arena | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.arena is not None:
            self.arena.close()


@dataclass(frozen=True, kw_only=True)
class _ByFlags:
    """What calls on the CPU by flags need."""

    flags: CallFlags
    #: For descriptors of inputs.
    descriptor_socket: socket.socket
    #: The worker's memory, to read outputs from.
    memory: WorkerMemory
    #: What a dry run hands over.
    dry_arena: Arena

    def close(self) -> None:
        for opened in (self.flags, self.descriptor_socket, self.memory, self.dry_arena):
            opened.close()


class WorkerClient:
    """The worker as the judge sees it. Whatever goes wrong on its side is raised as a `Fault`."""

    def __init__(self, sock: socket.socket, collector: Watcher, *, core: int | None = None) -> None:
        """`core`: the judge's own core, if this thread is confined to it already."""
        self._collector = collector
        #: Bytes that the tensors of a case may fill.
        self.memory_bytes = UNASKED_BYTES
        self._channel = Channel(
            sock, max_bytes=MAX_FROM_WORKER_BYTES, accept_descriptors=False, wake_fd=collector.wake_fd
        )
        self._core = judge_core() if core is None else core
        stay_on(self._core)
        self._spin_ns = SPIN_NS if self._core is not None else 0
        self._by_flags: _ByFlags | None = None
        #: What the worker's processes do on the cores; None: calls do not go by flags.
        self.activity: Activity | None = None
        #: Calls on a device that the judge's own work there marks, and how many in a row were not enqueued in time.
        self._device_calls: DeviceCalls | None = None
        #: The same, once they are closed.
        self._given_up: DeviceCalls | None = None
        self._stream_flags: CallFlags | None = None
        #: Those of calls that the worker is preparing, and its answer when it has.
        self._preparing: CallFlags | None = None
        self._flush_bytes: int | None = None
        self._prepared: dict[str, Any] | None = None
        self._not_enqueued = 0
        self._sched_delay = SchedDelay()
        self._calls = 0
        #: The next call, if the worker has been told of it already.
        self._armed: _Armed | None = None
        self._last_end_ns = 0
        #: The tree of the last call's inputs. The worker has it, too.
        self._tree: object = None
        #: What its output has in common with the next one; None: nothing is known, or something else can differ than
        #: bytes. Once a call had another output, this stays so for such inputs.
        self._layout: Layout | None = None
        self._layouts_differ = False
        #: Bytes of each tensor of the last output by message.
        self._output_sizes: list[int] = []
        #: Calls with a large output since the worker was last seen to sleep.
        self._awake = 0
        #: How long copies of outputs take, by control calls; whether this worker is the control process.
        self.pace = Pace()
        self.is_trusted = False
        #: Time that the judge has waited for the worker, for the message of a mode that ran out of time.
        self.waited_ns = 0
        #: Processor time of this thread in that, and in reading what the worker sent.
        self.waiting_cpu_ns = 0

    @property
    def core(self) -> int | None:
        """The judge's own core; None: there is none."""
        return self._core

    @property
    def calls_by_flags(self) -> bool:
        """Whether calls on the CPU begin and end by flags."""
        return self._by_flags is not None

    def warm_up(self, *, deadline_ns: int) -> None:
        """Make the first calls, which cost more than others, with the calibration kernel."""
        # Whatever the cases of a request may hold.
        asked, self.memory_bytes = self.memory_bytes, UNASKED_BYTES
        for nbytes in (64, 64 << 10, 512 << 10):
            payload = torch.ones(nbytes, dtype=torch.uint8)
            for _ in range(4):
                self.call(pack((0, payload, 64)), output_capacity=64, deadline_ns=deadline_ns)
        self.withdraw_call(deadline_ns=deadline_ns)
        self.memory_bytes = asked

    def load(
        self, files: Mapping[str, str], submission: str, *, deadline_ns: int, compiled: Compiled | None = None
    ) -> None:
        """Give the worker its files. It imports the submission, or compiles and loads it."""
        message = {"op": "load", "files": dict(files), "submission": submission}
        if compiled is not None:
            message["compiled"] = asdict(compiled)
        self._ask(message, "loaded", deadline_ns)

    def run(self, function: str, *, deadline_ns: int, **values: object) -> None:
        """Let the worker call a function of a guest's, as `module:name`; a Submission that it returns is called then.

        Raises:
            Fault: see the class.
        """
        module, _, name = function.partition(":")
        self._ask({"op": "run", "module": module, "function": name, "values": values}, "ran", deadline_ns)

    def flush(self, *, deadline_ns: int) -> None:
        """Make the worker flush stdout and stderr."""
        self._ask({"op": "flush"}, "flushed", deadline_ns)

    def close(self, *, for_good: bool = False) -> None:
        """Close everything but the socket; `for_good`: that, too, with memory and descriptors that lie in it unread."""
        if for_good:
            self._channel.close()
        if self._armed is not None:
            with self._armed:
                self._armed = None
        self.give_up_device()
        self._sched_delay.close()
        if self.activity is not None:
            self.activity.close()
        if self._by_flags is not None:
            self._by_flags.close()
            self._by_flags = None

    @contextlib.contextmanager
    def holding_device(self) -> Iterator[float]:
        """Keep the device for a while after the release of every call; gives that time in nanoseconds."""
        if self._device_calls is None:
            raise RuntimeError("no calls on a device are prepared")
        self._device_calls.holds = True
        try:
            yield self._device_calls.measured.hold_ns
        finally:
            self._device_calls.holds = False

    def give_up_device(self) -> None:
        """Make calls on a device by message from now on."""
        for opened in (self._device_calls, self._stream_flags):
            if opened is not None:
                opened.close()
        self._given_up, self._device_calls, self._stream_flags = self._device_calls or self._given_up, None, None

    def free_device(self) -> None:
        """Free the device's memory that was kept for the worker's inputs. The worker must be gone."""
        if self._given_up is not None:
            self._given_up.free()

    @property
    def device_measured(self) -> Measured | None:
        """What was measured of the device, for another worker; None: calls on it go by message."""
        return None if self._device_calls is None else self._device_calls.measured

    def withdraw_call(self, *, deadline_ns: int) -> None:
        """Take back the call that the worker was told of: it waits for a message again, not for the start flag.

        Needed before any other message, and before a long pause.
        """
        if self._by_flags is None or self._armed is None:
            return
        with self._armed as armed:
            self._armed = None
            self._by_flags.flags.withdraw(armed.call)
            self._hear_armed(deadline_ns)

    def open_flags(self, *, deadline_ns: int) -> bool:
        """Make calls on the CPU begin and end by flags from now on. Must come before a submission is loaded.

        Returns False where both sides share a core: a side that spins would keep the other from running. And where one
        core may see the stores of another in another order.
        """
        if self._core is None or not KEEPS_ORDER:
            return False
        flags = CallFlags.create()
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            answer = self._ask({"op": "open_flags"}, "flags_open", deadline_ns, (flags.fd, theirs.fileno()))
        line.setblocking(False)
        # Only trusted code has run in the worker so far. Nothing that it sends here later is read.
        try:
            _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
        except BlockingIOError:
            descriptors = []
        if not descriptors:
            # This kernel lets nobody read the memory of a process.
            flags.close()
            line.close()
            return False
        self.activity = Activity(int(answer["pid"]))
        self._sched_delay.watch(int(answer["pid"]))
        self._by_flags = _ByFlags(
            flags=flags,
            descriptor_socket=line,
            memory=WorkerMemory(descriptors[0]),
            dry_arena=Arena.create_for_later(HUGE_PAGE_BYTES),
        )
        return True

    def call(
        self,
        packed: Packed,
        *,
        output_capacity: int | None,
        deadline_ns: int,
        by_message: bool = False,
        ahead: bool = True,
        keeps_inputs: bool = False,
    ) -> Called:
        """Make one call on fresh memory.

        `output_capacity`: bytes of the output of an earlier call like this one; None: not known. `by_message`: not by
        flags. `ahead`: another call like it will probably follow. `keeps_inputs`: see `Called.left`.
        """
        # The tree holds numbers and texts of the input. By flags, the worker gets the tree before the clock runs, so it
        # must be one that the worker knows already. On a device the worker's tensors are copies of existing inputs.
        alike = packed.tree == self._tree
        if self._by_flags is not None and self._layout is not None and alike and not by_message:
            return self._call_by_flags(
                self._by_flags, packed, self._layout, ahead=ahead, keeps_inputs=keeps_inputs, deadline_ns=deadline_ns
            )
        few_parts = len(self._output_sizes) <= _DEVICE_PARTS
        may_use_device = alike and not by_message and output_capacity is not None and few_parts
        if self._device_calls is not None and may_use_device and packed.device not in {None, "cpu"}:
            return self._call_on_device(self._device_calls, packed, keeps_inputs=keeps_inputs, deadline_ns=deadline_ns)
        self._tree = packed.tree
        called = self._call_by_message(
            packed, output_capacity=output_capacity or 0, keeps_inputs=keeps_inputs, deadline_ns=deadline_ns
        )
        self._layouts_differ = self._layouts_differ and alike
        layout = called.output.layout if packed.device == "cpu" and not self._layouts_differ else None
        self._layout = layout if layout is not None and len(layout.sizes) <= MAX_PARTS else None
        self._output_sizes = called.output.sizes
        return called

    def begin_device(self, *, flush_bytes: int | None, deadline_ns: int, tried: bool) -> None:
        """Let the worker begin what `prepare_device` waits for, before `load`. Nothing else may be asked in between.

        `flush_bytes`: to write between two calls to empty the device's caches; None: the worker decides. `tried`: an
        earlier worker has found that streams of this device can wait. Else this one tries it.
        """
        self.withdraw_call(deadline_ns=deadline_ns)
        self._preparing, self._flush_bytes = CallFlags.create(), flush_bytes
        message = {"op": "prepare_device", "flush_bytes": flush_bytes, "tried": tried}
        self._send(encode(message, descriptors=1), (self._preparing.fd,), deadline_ns)

    def await_device(self, *, deadline_ns: int) -> None:
        """Wait until the worker has done what `begin_device` has asked of it, so that it uses the device no longer."""
        if self._prepared is None:
            self._prepared = self._receive(deadline_ns, min(self._spin_ns, ASK_SPIN_NS))
            expect(self._prepared, "device_prepared")

    def prepare_device(self, *, deadline_ns: int, measured: Measured | None = None) -> str | None:
        """Make the worker's device ready for calls by flags; why it cannot, in the worker's words.

        `known`: what was measured of the device; None: it is measured now.
        """
        failed = ""
        if measured is None and self._core is not None:
            try:
                # The worker makes its context meanwhile.
                measured = Measured.of_device(self._flush_bytes)
            except RuntimeError as error:
                failed = str(error)
        self.await_device(deadline_ns=deadline_ns)
        flags, answer = self._preparing, self._prepared
        self._preparing = self._prepared = None
        if flags is None or answer is None:
            raise RuntimeError("the worker was not asked to prepare its device")
        if self._core is None:
            return "judge and worker share a core"
        if answer["why_not"] is not None:
            return str(answer["why_not"])[:1000]
        if measured is None:
            flags.close()
            return f"the judge's side: {failed}"[:1000]
        try:
            calls = DeviceCalls(flags, Activity(answer["pid"]), measured)
        except (DriverError, RuntimeError) as error:
            flags.close()
            return f"the judge's side: {error}"[:1000]
        self._device_calls, self._stream_flags = calls, flags
        return None

    def _call_on_device(self, calls: DeviceCalls, packed: Packed, *, keeps_inputs: bool, deadline_ns: int) -> Called:
        placed, size = packed.place()
        try:
            calls.reserve(size)
        except DriverError as error:
            raise torch.OutOfMemoryError(f"no device memory for {size} bytes of inputs: {error}") from error
        self._calls += 1
        call = self._calls
        message = {"op": "enqueue", "call": call, "arena": calls.arena_handle.hex()} | packed.message(placed, size)
        self._send(encode(message, descriptors=0), (), deadline_ns)
        waiting_ns, began_ns = self.waiting_cpu_ns, time.thread_time_ns()
        try:
            answer = self._enqueued(deadline_ns)
            in_time = answer is not None
            output = None if answer is None else self._output_of(calls, answer, packed)
            # More tensors or bytes than before would give the worker time while they are copied.
            alike = output is not None and output.sizes == self._output_sizes
            calls.release(packed, placed, call)
            if output is not None:
                calls.copy_output(output)
            start = time.perf_counter_ns()
            calls.start(call)
            late = self._wait_finished(calls, deadline_ns, enqueued=in_time)
            if answer is None or output is None:
                answer = late or self._receive(deadline_ns)
                output = self._output_of(calls, answer, packed)
                calls.copy_output(output)
        except BaseException:
            calls.let_go(call)
            raise
        try:
            calls.close_output(output)
            marked = calls.marked(output)
        except (DriverError, RuntimeError) as error:
            raise_for_device(error)
            raise Fault("rejected", f"the output's device memory cannot be read: {error}", gone=True) from error
        # What came after the end number ended nothing, nor did it where the output is unlike the first one: then the
        # judge's host says when it had all.
        host_ns = time.perf_counter_ns() - start
        self.waited_ns += host_ns
        self.waiting_cpu_ns = waiting_ns + time.thread_time_ns() - began_ns
        done = self._ask({"op": "collect"}, "done", deadline_ns)
        taken = take_copied(answer.get("tree"), output.parts, input_bytes=packed.nbytes, memory_bytes=self.memory_bytes)
        return Called(
            **vars(taken),
            claim_ns=claimed(done),
            outside_ns=marked.outside_ns if in_time and alike else max(marked.outside_ns, host_ns),
            by_flags=True,
            exclusive=marked.exclusive and in_time and alike,
            # No processor takes part in the span.
            delayed_ns=0,
            left=partial(unpack, packed.tree, calls.inputs(placed)) if keeps_inputs else None,
        )

    def _enqueued(self, deadline_ns: int) -> dict[str, Any] | None:
        """The worker's answer once all of a call is enqueued. None: not in time, as for a kernel that synchronises."""
        patience_ns = ENQUEUE_NS if self._not_enqueued < _OFTEN else ENQUEUE_NS // 50
        until = time.monotonic_ns() + patience_ns
        while time.monotonic_ns() < until:
            if self._channel.readable(1):
                self._not_enqueued = 0
                return self._receive(deadline_ns)
        self._not_enqueued += 1
        return None

    def _output_of(self, calls: DeviceCalls, answer: dict[str, Any], packed: Packed) -> Output:
        """The memory of the output that a worker describes."""
        expect(answer, "enqueued")
        parts = _parts_of(answer.get("parts"))
        if held(packed.nbytes, sum(part.nbytes for part in parts)) > self.memory_bytes:
            raise Fault("memory_limit", "custom_kernel returned more bytes than this case may hold", gone=True)
        try:
            return calls.open_output(parts)
        except (DriverError, ValueError) as error:
            raise_for_device(error)
            raise tampered(f"an output that is not where the worker says that it is: {error}") from error

    def _wait_finished(self, calls: DeviceCalls, deadline_ns: int, *, enqueued: bool) -> dict[str, Any] | None:
        """Wait for the end of a call. The worker's message, if it came meanwhile."""
        began_ns = time.monotonic_ns()
        spin_until = began_ns + SPIN_NS
        heard = None
        while not calls.finished():
            now = time.monotonic_ns()
            if now > deadline_ns:
                raise self._too_late(began_ns)
            if now > spin_until and heard is None and self._channel.readable(1):
                # It has ended, or it says what became of a call that it had not enqueued.
                heard = self._receive(deadline_ns)
                if enqueued:
                    raise tampered("a message that nothing had asked for")
                expect(heard, "enqueued")
        return heard

    def _call_by_flags(
        self,
        by_flags: _ByFlags,
        packed: Packed,
        layout: Layout,
        *,
        ahead: bool,
        keeps_inputs: bool,
        deadline_ns: int,
    ) -> Called:
        flags, sizes = by_flags.flags, packed.sizes
        placed = self._armed.placed if self._armed is not None and self._armed.sizes == sizes else _placed(sizes)
        with contextlib.ExitStack() as stack:
            release, sent = (
                (self._copier(packed, placed), None)
                if packed.nbytes <= COPY_BYTES
                else self._sender(by_flags, packed, placed, stack)
            )
            in_huge_pages = sent is None or sent.collapse() or sent.size < HUGE_PAGE_BYTES
            copy = Copy(layout.sizes, pace=self.pace, is_trusted=self.is_trusted)
            armed = stack.enter_context(self._armed_for(sizes, placed, deadline_ns=deadline_ns))
            waiting_ns, began_ns = self.waiting_cpu_ns, time.thread_time_ns()
            looks = self._awake < _AWAKE or self._awake % _LOOK_EVERY == 0
            if self.activity is not None and not self.is_trusted and copy.is_large and looks:
                # Lists its threads, which would take long while they can write.
                look = self.activity.look()
                if look is not None and len(look.ran_ns) <= _FEW_THREADS:
                    copy.activity = self.activity
            self._dry_run(by_flags, armed)
            before = self._sched_delay.total_ns()
            copy.delayed = partial(self._sched_delay.since, before)
            start = time.perf_counter_ns()
            # Until here the worker cannot see the inputs.
            release(armed)
            flags.release(armed.call)
            self._wait_until_finished(flags, armed.call, deadline_ns)
            delivery = flags.delivered(len(layout.sizes))
            if delivery is None:
                # It failed, or has another output.
                taken, claim_ns = self._take_by_message(None, (), None, packed, deadline_ns=deadline_ns)
                self._layout, self._layouts_differ = None, True
            else:
                addresses, claim_ns = delivery
                taken = self._taken_like(by_flags, layout, copy, addresses)
                if copy.is_large:
                    self._awake = 0 if taken.slept else self._awake + 1
            delayed = self._sched_delay.since(before)
            self.waited_ns += taken.ended_ns - start
            self.waiting_cpu_ns = waiting_ns + time.thread_time_ns() - began_ns
            # Calls follow each other quickly, and no other process needs the cores.
            calm = start - self._last_end_ns < _SOON_NS and delayed is not None and delayed < _CROWDED_NS
            self._last_end_ns = taken.ended_ns
            if ahead and calm and delivery is not None and packed.nbytes <= COPY_BYTES:
                # The worker answers this while the judge looks at the output and makes the next inputs. Not where these
                # go as a descriptor: beside a worker that spins, moving them to huge pages takes a tick of the kernel.
                self._arm(sizes, _placed(sizes), deadline_ns=deadline_ns)
        return Called(
            **vars(taken),
            claim_ns=claimed({"claim_ns": claim_ns}),
            outside_ns=taken.ended_ns - start,
            by_flags=delivery is not None,
            in_huge_pages=in_huge_pages,
            delayed_ns=delayed if copy.delayed_ns is None else copy.delayed_ns,
            left=_left(packed, sent or armed.arena, placed) if keeps_inputs else None,
        )

    def _taken_like(self, by_flags: _ByFlags, layout: Layout, copy: Copy, addresses: Sequence[int]) -> Taken:
        try:
            return take_like(layout, copy, [(by_flags.memory, address) for address in addresses])
        except Unreadable as error:
            if self._collector.wait_exit(1.0) is not None:
                raise died(self._collector) from error
            text = "the output is not where the submission's process says that it is"
            raise Fault("rejected", text, gone=True) from error

    def _dry_run(self, by_flags: _ByFlags, armed: _Armed) -> None:
        """Hand over memory that holds nothing, and look at what comes back.

        The making of inputs leaves cold caches, and a worker that waits for milliseconds gets them, too. Without this a
        hand-over of a megabyte takes twice as long, and longer the more time has passed. A worker that takes no part
        in it, or not yet, is called all the same: it finds the descriptor of the dry run first.
        """
        flags = by_flags.flags
        if armed.arena is None:
            self._send_descriptor(by_flags, by_flags.dry_arena)
        flags.ask_dry_run(armed.call)
        if flags.dry_run_ended(armed.call, spin_ns=ASK_SPIN_NS):
            addresses, _ = flags.delivered(1) or ([], 0)
            with contextlib.suppress(Unreadable):
                Copy([DRY_BYTES] * len(addresses)).fill([(by_flags.memory, address) for address in addresses])

    def _copier(self, packed: Packed, placed: Sequence[Placed]) -> Callable[[_Armed], None]:
        """A function that hands inputs over by copying them to memory that the worker has mapped."""
        first, staged = packed.staged(placed)

        def release(armed: _Armed) -> None:
            if armed.arena is None:
                raise RuntimeError("the worker has no memory to copy inputs to")
            armed.arena.fill(first, staged)

        return release

    def _sender(
        self, by_flags: _ByFlags, packed: Packed, placed: Sequence[Placed], stack: contextlib.ExitStack
    ) -> tuple[Callable[[_Armed], None], Arena]:
        """A function that hands inputs over as a descriptor of memory that holds them; and that memory."""
        inputs = stack.enter_context(Arena.create_for_later(size_of(placed)))
        packed.write(inputs, placed)
        return lambda _: self._send_descriptor(by_flags, inputs), inputs

    def _send_descriptor(self, by_flags: _ByFlags, arena: Arena) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [arena.fd]))]
        try:
            by_flags.descriptor_socket.sendmsg([b"i"], rights, socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise died(self._collector) from error
        except BlockingIOError as error:
            raise tampered("inputs that it was handed are not fetched") from error

    def _armed_for(self, sizes: tuple[int, ...], placed: Sequence[Placed], *, deadline_ns: int) -> _Armed:
        """The announced call with these places. A call that was announced with others is withdrawn."""
        armed = self._armed
        late = armed is not None and time.perf_counter_ns() - self._last_end_ns > _SOON_NS
        if armed is None or late or armed.placed is not placed:
            self.withdraw_call(deadline_ns=deadline_ns)
            armed = self._arm(sizes, placed, deadline_ns=deadline_ns)
        self._hear_armed(deadline_ns)
        self._armed = None
        return armed

    def _arm(self, sizes: tuple[int, ...], placed: Sequence[Placed], *, deadline_ns: int) -> _Armed:
        """Announce a call to the worker, without waiting for its answer."""
        self._calls += 1
        nbytes = size_of(placed)
        arena = Arena.create(nbytes) if sum(sizes) <= COPY_BYTES else None
        self._armed = _Armed(call=self._calls, sizes=sizes, placed=placed, arena=arena)
        message = {
            "op": "arm",
            "size": size_for_later(nbytes) if arena is None else arena.size,
            "call": self._calls,
            "storages": [[each.offset, each.nbytes] for each in placed],
        }
        descriptors = () if arena is None else (arena.fd,)
        self._send(encode(message, descriptors=len(descriptors)), descriptors, deadline_ns)
        return self._armed

    def _hear_armed(self, deadline_ns: int) -> None:
        expect(self._receive(deadline_ns, min(self._spin_ns, ASK_SPIN_NS)), "armed")

    def _wait_until_finished(self, flags: CallFlags, call: int, deadline_ns: int) -> None:
        """Wait for the end of a call. The judge looks at the flag only now and then once it has spun for long."""
        began_ns = time.monotonic_ns()
        if flags.finished(call, spin_ns=self._spin_ns):
            return
        nap_s = self._spin_ns / 1e9 * _NAP_SHARE
        while not flags.finished(call, spin_ns=0):
            if time.monotonic_ns() > deadline_ns:
                raise self._too_late(began_ns)
            # Only a worker that has ended, or is ended, can be heard before the flag.
            if self._channel.readable(0):
                if flags.finished(call, spin_ns=0):
                    return
                self._receive(deadline_ns)
                raise tampered("a message that nothing had asked for")
            time.sleep(nap_s)
            nap_s *= 1 + _NAP_SHARE

    def _call_by_message(self, packed: Packed, *, output_capacity: int, keeps_inputs: bool, deadline_ns: int) -> Called:
        placed, size = packed.place()
        with Arena.create(size) as inputs, Arena.create(output_capacity) as output_arena:
            packed.write(inputs, placed)
            output_arena.poison()
            encoded = encode({"op": "call", **packed.message(placed, inputs.size)}, descriptors=1)
            self._ask({"op": "arm", "size": output_arena.size}, "armed", deadline_ns, (output_arena.fd,))
            # The inputs reach the worker with this message and not before, so nothing can be computed early.
            before = self._sched_delay.total_ns()
            start = time.perf_counter_ns()
            self._send(encoded, (inputs.fd,), deadline_ns)
            taken, claim_ns = self._take_by_message(inputs, placed, output_arena, packed, deadline_ns=deadline_ns)
        return Called(
            **vars(taken),
            claim_ns=claim_ns,
            outside_ns=taken.ended_ns - start,
            delayed_ns=self._sched_delay.since(before),
            left=_left(packed, inputs, placed) if keeps_inputs and packed.device == "cpu" else None,
        )

    def _take_by_message(
        self,
        inputs: Arena | None,
        placed: Sequence[Placed],
        output_arena: Arena | None,
        packed: Packed,
        *,
        deadline_ns: int,
    ) -> tuple[Taken, int]:
        """The output that the worker describes, and its claim. If it does not fit, after offering a larger arena."""
        answer = self._receive(deadline_ns, self._spin_ns)
        with contextlib.ExitStack() as stack:
            if answer["op"] == "need":
                nbytes = needed(answer, input_bytes=packed.nbytes, memory_bytes=self.memory_bytes)
                output_arena = stack.enter_context(Arena.create(nbytes))
                output_arena.poison()
                message = encode({"op": "output_arena", "size": output_arena.size}, descriptors=1)
                self._send(message, (output_arena.fd,), deadline_ns)
                answer = self._receive(deadline_ns, self._spin_ns)
            expect(answer, "done")
            if output_arena is None:
                raise tampered("an output that no room was asked for")
            taken = take(
                answer.get("tree"),
                inputs=inputs or output_arena,
                placed=placed,
                output_arena=output_arena,
                input_bytes=packed.nbytes,
                memory_bytes=self.memory_bytes,
            )
        return taken, claimed(answer)

    def profile(self, packed: Packed, *, capture: Capture | None, deadline_ns: int) -> Profile:
        """Run the kernel once under torch's profiler, and with a capture once more under the vendor's."""
        placed, size = packed.place()
        with Arena.create(size) as inputs, Arena.create(PROFILE_BYTES) as output_arena:
            packed.write(inputs, placed)
            opened = {"op": "open", **packed.message(placed, inputs.size)}
            self._ask(opened, "opened", deadline_ns, (inputs.fd,))
            message = profile_message(output_arena, capture, deadline_ns)
            return profile_of(self._ask(message, "profiled", deadline_ns, (output_arena.fd,)), output_arena)

    def _ask(
        self, message: Mapping[str, Any], expected: str, deadline_ns: int, descriptors: tuple[int, ...] = ()
    ) -> dict[str, Any]:
        self.withdraw_call(deadline_ns=deadline_ns)
        self._send(encode(message, descriptors=len(descriptors)), descriptors, deadline_ns)
        answer = self._receive(deadline_ns, min(self._spin_ns, ASK_SPIN_NS))
        expect(answer, expected)
        return answer

    def _too_late(self, began_ns: int) -> Fault:
        """The time limit passed while the judge waited for the worker, on the monotonic clock since then."""
        self.waited_ns += time.monotonic_ns() - began_ns
        return too_late()

    def _send(self, message: bytes, descriptors: tuple[int, ...], deadline_ns: int) -> None:
        began_ns = time.monotonic_ns()
        try:
            self._channel.send(message, descriptors, deadline_ns=deadline_ns)
        except (PeerClosed, Interrupted) as error:
            raise died(self._collector) from error
        except TimeoutError as error:
            raise self._too_late(began_ns) from error

    def _receive(self, deadline_ns: int, spin_ns: int = 0) -> dict[str, Any]:
        start, began_ns = time.monotonic_ns(), time.thread_time_ns()
        try:
            message, _ = self._channel.receive(deadline_ns=deadline_ns, spin_ns=spin_ns)
        except (PeerClosed, Interrupted) as error:
            raise died(self._collector) from error
        except TimeoutError as error:
            raise too_late() from error
        except WireViolation as error:
            raise tampered(str(error)) from error
        finally:
            self.waited_ns += time.monotonic_ns() - start
            self.waiting_cpu_ns += time.thread_time_ns() - began_ns
        if self._collector.flooded:
            raise flooded()
        return message


def _left(packed: Packed, arena: Arena | None, placed: Sequence[Placed]) -> Callable[[], object] | None:
    """See `Called.left`; `arena`, `placed`: where its inputs lie."""
    if arena is None:
        return None
    return partial(unpack, packed.tree, [arena.bytes_at(at.offset, at.nbytes) for at in placed])


def _parts_of(words: object) -> list[Part]:
    """The parts of an output, by a worker's word."""
    parts = []
    for item in words if isinstance(words, list) and len(words) <= _DEVICE_PARTS else [None]:
        match item:
            case [str(handle), int(offset), int(nbytes)] if within(offset, 1 << 48) and within(nbytes, 1 << 48):
                try:
                    parts.append(Part(handle=bytes.fromhex(handle), offset=offset, nbytes=nbytes))
                except ValueError as error:
                    raise tampered("an output with a handle that is none") from error
            case _:
                raise tampered("an output in impossible places")
    return parts


def _placed(sizes: Sequence[int]) -> Sequence[Placed]:
    """Where inputs lie in their arena. Arenas that the worker maps itself have random addresses instead of offsets."""
    return place(sizes, lead=sum(sizes) <= COPY_BYTES)[0]


#: Bytes for a profile's table and files.
PROFILE_BYTES = MAX_TABLE_BYTES + sum(most for _, most in FILES.values())
#: Whose a profile may be.
_PROFILERS = frozenset({"torch", *(tool.program for tool in Tool)})


def profile_message(output_arena: Arena, capture: Capture | None, deadline_ns: int) -> dict[str, Any]:
    """Asks for a profile. A vendor's profiler has half of the time that is left, so that torch's is not lost."""
    limit_s = max(0.0, (deadline_ns - time.monotonic_ns()) / 2e9)
    options = None if capture is None else asdict(capture)
    return {"op": "profile", "output_size": output_arena.size, "capture": options, "limit_s": limit_s}


def profile_of(answer: Mapping[str, Any], output_arena: Arena) -> Profile:
    """A worker's profile, read from the arena that it was given.

    Raises:
        Fault: its sizes are impossible.
    """
    files = answer.get("files")
    sizes: dict[str, int] = {}
    for item in files if isinstance(files, list) and len(files) <= len(FILES) else [None]:
        match item:
            case [str(suffix), int(size)] if suffix in FILES and within(size, FILES[suffix][1]):
                sizes[suffix] = size
            case _:
                raise tampered("a profile with an impossible file")
    table, profiler, failure = (answer.get(name) for name in ("table", "profiler", "failure"))
    if not within(table, MAX_TABLE_BYTES) or str(profiler) not in _PROFILERS:
        raise tampered("a profile of an impossible size or kind")
    if not isinstance(failure, str | None):
        raise tampered("a profile with an impossible failure")
    parts, offset = [], 0
    for size in (int(table or 0), *sizes.values()):
        parts.append(output_arena.bytes_at(offset, size).numpy().tobytes())
        offset += size
    return Profile(
        table=parts[0], files=dict(zip(sizes, parts[1:], strict=True)), profiler=str(profiler), failure=failure
    )
