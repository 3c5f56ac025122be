"""The worker: hosts the submission, calls it when told to, copies its output into the judge's memory.

This module holds the answers to the judge's messages, and all that runs between a call's release and its end.

The submission may rewrite everything in this process once it is loaded, so nothing here decides anything. Its times are
claims, the judge checks its messages, and its text is shown as text. It holds no reference, no expected output, no
seed, no tolerance and no result descriptor. Init (or `local`) starts it before there is a request. It imports
torch at once.

Messages on the socket in KR_JUDGE_FD, and their answers:

    load           {files, submission, compiled} -> loaded | failed
        compiled: absent, or a library that the compiler makes (see `compiled`)
    run            {module, function, values} -> ran | failed                 what a guest has for its kind of job
        if the function returns a Submission, that is called from then on
    open_flags     {}                      -> flags_open {pid}                descriptors: flags, a socket
        on that socket the worker sends a descriptor of its own memory, once, and gets descriptors of inputs
    prepare_device {flush_bytes, tried}    -> device_prepared {pid, why_not}  descriptor: a page of flags
        flush_bytes: bytes to write to empty the device's caches; tried: whether another worker has tried it before;
        why_not: why its calls cannot begin by flags, or null
    enqueue        {call, arena, tree, storages} -> enqueued {tree, parts} | failed
        one call on the device, enqueued before its inputs exist (see `stream_block`). arena: handle of the device
        memory that will hold them; parts: handle, offset and bytes of each tensor of the output, empty handle: in that
        arena. The worker then waits for the next message without using a processor.
    collect        {}                      -> done {claim_ns} | failed       after enqueue, when the call has ended
    arm            {size}                  -> armed                           descriptor: output arena
        drops everything of earlier calls, maps the output arena, and spins for the next message
    arm            {size, call, storages}  -> armed                           descriptor, or none: inputs to come
        builds the inputs that the last call's tree describes, over memory that holds no inputs yet: the memory of the
        descriptor, or, without one, addresses where the worker maps the descriptor that it gets on the socket. The call
        begins when the flags say so. Before, they ask for a dry run: where inputs will come as a descriptor, one of
        memory that holds nothing comes first. The flags also say where its output lies, the claim, and that it has
        ended. If the call failed, or its output has another layout than that of the last call by message, they say
        that a second answer comes: failed, or need {bytes} as after `call`.
    call           {tree, storages, size}  -> done | need {bytes} | failed    descriptor: inputs
        open, go and deliver in one
    output_arena   {size}                  -> done | failed                   descriptor: a larger arena, same output
    profile        {output_size, capture, limit_s}  -> profiled {table, files, profiler, failure} | failed
        descriptor: output arena; after open; capture: of a vendor's profiler, null: none is used; limit_s: seconds for
        it; table: bytes; files: ends of names with their bytes; failure: why nothing was captured, null: it was
    flush          {}                      -> flushed

If it is one rank of several:

    enroll         {rank, world_size, device} -> enrolled {pid}
    join           {meeting}               -> joined | failed                 joins a new process group
    open           {tree, storages, size}  -> opened | failed                 descriptor: inputs
    go             {at_ns, until_ns}       -> returned {claim_ns} | failed    begins at the first moment
        stuck {text, waits} in between, once, if the kernel has not returned at the second moment
    deliver        {}                      -> done | need {bytes} | failed
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from tasks.harness.shared.cores import leave_judge_core

# Before torch counts the cores for its threads; only in a process that a judge waits for.
_OWN_CORES = "KR_JUDGE_FD" in os.environ and leave_judge_core()

import torch  # noqa: E402 see above

from tasks.harness.emulate import install_if_asked  # noqa: E402 see above
from tasks.harness.shared.arenas import HUGE_PAGE_BYTES, Arena  # noqa: E402 see above
from tasks.harness.shared.call_flags import DRY_BYTES, FLAGS_BYTES, CallFlags  # noqa: E402 see above
from tasks.harness.shared.children import end_if_child  # noqa: E402 see above
from tasks.harness.shared.device_memory import release_memory  # noqa: E402 see above
from tasks.harness.shared.profilers import Capture  # noqa: E402 see above
from tasks.harness.shared.values import MAX_TEXT, Layout, Outgoing, check_tree  # noqa: E402 see above
from tasks.harness.shared.wire import (  # noqa: E402 see above
    MAX_FROM_JUDGE_BYTES,
    MAX_FROM_WORKER_BYTES,
    Channel,
    PeerClosed,
    WireViolation,
    encode,
)

from .calibration import calibration_kernel  # noqa: E402 see above
from .device import Device  # noqa: E402 see above
from .failures import describe_failure  # noqa: E402 see above
from .inputs import Inputs, map_memory  # noqa: E402 see above
from .output_form import OutputForm  # noqa: E402 see above
from .profiling import profile_call  # noqa: E402 see above
from .ranks import Rank  # noqa: E402 see above
from .stream_block import QueuedCall, StreamCall  # noqa: E402 see above
from .submission import Kernel, Submission, load  # noqa: E402 see above

#: How long an armed worker polls the socket before it sleeps.
SPIN_NS = 2_000_000
#: Answers after which the judge sends its next message at once.
_SPIN_AFTER = ("armed", "opened", "returned")
#: How long a worker spins on the flags before it sleeps in between. Long enough for a judge that woke up late.
FLAG_SPIN_NS = 20_000_000
#: Milliseconds between two looks at the flags after that.
_NAP_MS = 1
#: What an output is called that cannot be described.
_TOO_LARGE = "value of too many parts, or with too long a text"
#: Size of the ancillary data for one descriptor.
_RIGHTS_BYTES = socket.CMSG_SPACE(4)


class Worker:
    """Answers the judge's messages."""

    def __init__(self, channel: Channel, *, own_cores: bool, kernel: Kernel | None = None) -> None:
        self._own_cores = own_cores
        self._pid = os.getpid()
        self._channel = channel
        self._submission = Submission(kernel=kernel or calibration_kernel)
        #: The submission's; here as well, because a timed call must not take longer to find it.
        self._kernel = self._submission.kernel
        self._pending: Outgoing | None = None
        self._claim_ns = 0
        #: The last call's inputs. Unmapped when the next call is armed, outside the timed span.
        self._inputs: Inputs | None = None
        self._output: Arena | None = None
        self._flags: CallFlags | None = None
        #: The socket for descriptors of inputs.
        self._descriptor_socket: socket.socket | None = None
        #: The tree of the last call's inputs. And the form of its output, if plain tensors.
        self._tree: Any = None
        self._form: OutputForm | None = None
        #: What is common to outputs of which the flags alone say all.
        self._layout: Layout | None = None
        #: Copies of tensors of the output that are lazy or not contiguous.
        self._copies: list[torch.Tensor] = []
        #: The call that begins when the flags say so, and the addresses for inputs that come as a descriptor.
        self._awaited: tuple[CallFlags, int] | None = None
        self._reserved: Arena | None = None
        #: The descriptor of the last inputs that came on the socket.
        self._handed: int | None = None
        #: Where a dry run maps what it is sent, and what it returns.
        self._dry_arena = Arena.reserve(HUGE_PAGE_BYTES)
        self._dry_output = torch.zeros(DRY_BYTES, dtype=torch.uint8)
        self._dry_form = OutputForm.of(self._dry_output)
        self._device = Device()
        #: The last call that was enqueued on a device. Its output must live until the judge has copied it.
        self._queued: QueuedCall | None = None
        #: The kernel's return value, until the judge asks for it.
        self._returned: object = None
        self._rank: Rank | None = None
        #: The directory where all ranks start. A submission may change its own.
        self._home = Path.cwd()

    def serve(self) -> None:
        """Answer until the judge is gone."""
        handlers: Mapping[str, Callable[[dict[str, Any], Sequence[int]], dict[str, Any]]] = {
            "load": self._load,
            "run": self._run,
            "open_flags": self._open_flags,
            "prepare_device": self._prepare_device,
            "enqueue": self._enqueue,
            "collect": self._collect,
            "arm": self._arm,
            "call": self._call,
            "output_arena": self._larger_output_arena,
            "profile": self._profile,
            "flush": self._flush,
            "enroll": self._enroll,
            "join": self._join,
            "open": self._open,
            "go": self._go,
            "deliver": self._deliver_output,
        }
        spin_ns = 0
        while True:
            message, descriptors = self._channel.receive(spin_ns=spin_ns)
            try:
                answer = handlers[message["op"]](message, descriptors)
            except BaseException as error:  # noqa: BLE001 the harness boundary: what a submission raises is reported
                end_if_child(self._pid, error)
                answer = describe_failure(error)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            end_if_child(self._pid)
            spin_ns = SPIN_NS if answer["op"] in _SPIN_AFTER and self._own_cores else 0
            self._channel.send(encoded(answer))
            if self._awaited is not None:
                (flags, call), self._awaited = self._awaited, None
                if self._wait_for_release(flags, call):
                    unlike = self._call_by_flags(flags, call)
                    end_if_child(self._pid)
                    if unlike is not None:
                        self._channel.send(encoded(unlike))
                if self._reserved is not None:
                    # The judge makes the next inputs, and moves them to huge pages: beside a process that spins, that
                    # takes a tick of the kernel.
                    spin_ns = 0

    def _load(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        self._submission = load(Path.cwd(), message["files"], message["submission"], message.get("compiled"))
        self._kernel = self._submission.kernel
        return {"op": "loaded"}

    def _run(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        function = getattr(importlib.import_module(message["module"]), message["function"])
        returned = function(**message["values"])
        if isinstance(returned, Submission):
            self._submission, self._kernel = returned, returned.kernel
        return {"op": "ran"}

    def _open_flags(self, _: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        self._flags = CallFlags(map_memory(descriptors[0], FLAGS_BYTES))
        self._descriptor_socket = socket.socket(fileno=os.dup(descriptors[1]))
        # Other processes may be forbidden to open this one's memory, so this one passes a descriptor on. Some kernels
        # have no such file. But one that cannot be sent is a fault of the host.
        try:
            memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            memory = None
        if memory is not None:
            try:
                socket.send_fds(self._descriptor_socket, [b"m"], [memory])
            finally:
                os.close(memory)
        return {"op": "flags_open", "pid": os.getpid()}

    def _prepare_device(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        page = map_memory(descriptors[0], FLAGS_BYTES) if descriptors else None
        why_not = self._device.prepare(flush_bytes=message["flush_bytes"], page=page, tried=message["tried"])
        return {"op": "device_prepared", "pid": os.getpid(), "why_not": why_not}

    def _enqueue(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        self._pending = self._inputs = self._output = self._returned = self._queued = None
        order = StreamCall(
            call=message["call"],
            tree=message["tree"],
            storages=message["storages"],
            arena=bytes.fromhex(message["arena"]),
        )
        queued = self._queued = self._device.enqueue(order, self._kernel, adapt=self._submission.adapt)
        parts = [[handle.hex(), offset, nbytes] for handle, offset, nbytes in queued.parts]
        return {"op": "enqueued", "tree": queued.outgoing.tree, "parts": parts}

    def _collect(self, _: dict[str, Any], __: Sequence[int]) -> dict[str, Any]:
        if self._queued is None:
            raise RuntimeError("the judge asked for a call that was not enqueued")
        return {"op": "done", "claim_ns": self._queued.claim_ns()}

    def _arm(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        # `_pending` stays: its output still needs a larger arena, and the announced call may be withdrawn.
        self._inputs = self._output = self._returned = self._reserved = None
        self._copies = []
        if self._handed is not None:
            os.close(self._handed)
            self._handed = None
        if "call" not in message:
            self._output = map_memory(descriptors[0], message["size"])
            return {"op": "armed"}
        if self._flags is None:
            raise RuntimeError("the judge asked for a call by flags that are not open")
        if descriptors:
            arena = map_memory(descriptors[0], message["size"])
        else:
            arena = self._reserved = Arena.reserve(message["size"])
        self._build_inputs(arena, message["storages"], self._tree)
        self._awaited = self._flags, message["call"]
        return {"op": "armed"}

    def _addresses_like_last(self, output: object) -> list[int] | None:
        """The address of each tensor of an output like the last one by message; None if it is not like that.

        A look after the end would let a submission withdraw an output that it finds to be wrong.
        """
        return None if self._form is None else self._form.addresses(output, self._copies)

    def _wait_for_release(self, flags: CallFlags, call: int) -> bool:
        """Wait until the call may begin; False if it is withdrawn."""
        if not self._wait_until(flags.dry_run_asked, flags, call):
            return False
        self._dry_run(flags, call)
        return self._wait_until(flags.released, flags, call)

    def _dry_run(self, flags: CallFlags, call: int) -> None:
        """Do once what the hand-over of a call does, with memory that holds nothing."""
        # What fails here and matters fails in the call, too, which reports it.
        with suppress(Exception):
            if self._reserved is not None:
                descriptor = self._received()
                try:
                    self._dry_arena.enter(descriptor)
                finally:
                    os.close(descriptor)
            addresses = self._dry_form and self._dry_form.addresses(self._dry_output, [])
            flags.deliver(addresses or (), claim_ns=0)
        flags.end_dry_run(call)

    def _wait_until(self, is_set: Callable[..., bool], flags: CallFlags, call: int) -> bool:
        """Wait for a flag; False if the call is withdrawn."""
        spin_ns = FLAG_SPIN_NS
        while not is_set(call, spin_ns=spin_ns):
            # After so long a wait the call is not worth a spinning core.
            spin_ns = 0
            # The judge sends nothing before it releases or withdraws the call. Anything to read is the end of the
            # stream.
            readable = not flags.withdrawn(call) and self._channel.readable(_NAP_MS)
            if flags.withdrawn(call):
                return False
            if readable:
                raise PeerClosed("the judge is gone")
        return True

    def _call_by_flags(self, flags: CallFlags, call: int) -> dict[str, Any] | None:
        """Make a call; the answer where the flags do not say all."""
        kernel, value, reserved = self._kernel, self._opened().value, self._reserved
        try:
            if reserved is not None:
                self._handed = self._received()
                reserved.enter(self._handed)
            start = perf_counter_ns()
            output = kernel(value)
            self._claim_ns = perf_counter_ns() - start
            outgoing, addresses = None, self._addresses_like_last(output)
            if addresses is None:
                outgoing = Outgoing.describe(output, {})
                if outgoing.put_off:
                    # Work that is put off until the output is described is the kernel's own.
                    self._claim_ns = perf_counter_ns() - start
                if self._layout is None or Layout.of(outgoing.tree) != self._layout:
                    flags.deliver_in_message()
                    flags.finish(call)
                    return self._return_described(outgoing)
                addresses = outgoing.addresses
            elif self._copies:
                self._claim_ns = perf_counter_ns() - start
            flags.deliver(addresses, claim_ns=self._claim_ns)
        except BaseException as error:  # noqa: BLE001 the harness boundary, as in serve
            end_if_child(self._pid, error)
            flags.deliver_in_message()
            flags.finish(call)
            return describe_failure(error)
        flags.finish(call)
        # The judge reads the bytes where they lie.
        self._returned = output, outgoing
        return None

    def _received(self) -> int:
        """The next descriptor that the judge has sent on its socket."""
        if self._descriptor_socket is None:
            raise RuntimeError("the judge sends inputs on a socket that is not open")
        _, ancillary, _, _ = self._descriptor_socket.recvmsg(1, _RIGHTS_BYTES, socket.MSG_CMSG_CLOEXEC)
        return int.from_bytes(ancillary[0][2], sys.byteorder)

    def _enroll(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        place = {key: message[key] for key in ("rank", "world_size", "device")}
        self._rank = Rank(self._channel, self._home, **place)
        # Ranks that share a core must not spin on it.
        self._own_cores = self._own_cores and len(os.sched_getaffinity(0)) >= message["world_size"]
        return {"op": "enrolled", "pid": os.getpid()}

    def _join(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        self._enrolled().join(message["meeting"])
        return {"op": "joined"}

    def _receive_inputs(self, message: dict[str, Any], descriptor: int) -> Inputs:
        return self._build_inputs(map_memory(descriptor, message["size"]), message["storages"], message["tree"])

    def _build_inputs(self, arena: Arena, storages: Sequence[tuple[int, int]], tree: Any) -> Inputs:
        self._tree = tree
        self._inputs = Inputs.build(arena, storages, tree, adapt=self._submission.adapt)
        return self._inputs

    def _open(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        if self._receive_inputs(message, descriptors[0]).cuda:
            self._device.reset_l2()
            self._device.flush_l2()
            torch.cuda.synchronize()
        return {"op": "opened"}

    def _go(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        inputs = self._opened()
        kernel, value, at = self._kernel, inputs.value, message["at_ns"]
        with self._enrolled().reporting_stalls(message["until_ns"]):
            while perf_counter_ns() < at:
                pass
            # Device events would not see one rank wait for another. All ranks count from the same moment.
            self._returned = kernel(value)
            if inputs.cuda:
                torch.cuda.synchronize()
            self._claim_ns = perf_counter_ns() - at
        return {"op": "returned", "claim_ns": self._claim_ns}

    def _deliver_output(self, _: dict[str, Any], __: Sequence[int]) -> dict[str, Any]:
        output, self._returned = self._returned, None
        return self._return_output(output, self._opened())

    def _call(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        inputs = self._receive_inputs(message, descriptors[0])
        kernel, value = self._kernel, inputs.value
        if inputs.cuda:
            output, self._claim_ns = self._device.time_call(kernel, value)
        else:
            start = perf_counter_ns()
            output = kernel(value)
            self._claim_ns = perf_counter_ns() - start
        return self._return_output(output, inputs)

    def _enrolled(self) -> Rank:
        if self._rank is None:
            raise RuntimeError("the judge asked for a call of a rank that is none")
        return self._rank

    def _opened(self) -> Inputs:
        if self._inputs is None:
            raise RuntimeError("the judge asked for a call without inputs")
        return self._inputs

    def _return_output(self, output: object, inputs: Inputs) -> dict[str, Any]:
        start = perf_counter_ns()
        outgoing = self._describe_output(output, inputs.storages)
        if outgoing.put_off:
            if inputs.cuda:
                torch.cuda.synchronize()
            # Work that is put off until the output is described is the kernel's own.
            self._claim_ns += perf_counter_ns() - start
        return self._return_described(outgoing)

    def _describe_output(self, output: object, storages: Mapping[int, int]) -> Outgoing:
        outgoing = Outgoing.describe(output, storages)
        self._layout = Layout.of(outgoing.tree)
        self._form = None if self._layout is None else OutputForm.of(output)
        return outgoing

    def _return_described(self, outgoing: Outgoing) -> dict[str, Any]:
        if self._output is None or outgoing.nbytes > self._output.size:
            self._pending = outgoing
            return {"op": "need", "bytes": outgoing.nbytes}
        return self._deliver(outgoing, self._output)

    def _larger_output_arena(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        outgoing, self._pending = self._pending, None
        if outgoing is None:
            raise RuntimeError("the judge offered an arena, but no output waits for one")
        return self._deliver(outgoing, map_memory(descriptors[0], message["size"]))

    def _deliver(self, outgoing: Outgoing, output_arena: Arena) -> dict[str, Any]:
        outgoing.copy_to(output_arena)
        return {"op": "done", "tree": outgoing.tree, "claim_ns": self._claim_ns}

    def _profile(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        capture = None if message["capture"] is None else Capture(**message["capture"])
        profile = profile_call(self._submission, self._opened(), capture=capture, limit_s=message["limit_s"])
        output_arena = map_memory(descriptors[0], message["output_size"])
        output_arena.fill(0, memoryview(b"".join([profile.table, *profile.files.values()])))
        return {
            "op": "profiled",
            "table": len(profile.table),
            "files": [[suffix, len(data)] for suffix, data in profile.files.items()],
            "profiler": profile.profiler,
            "failure": profile.failure,
        }

    def _flush(self, _: dict[str, Any], __: Sequence[int]) -> dict[str, Any]:
        # A submission may have closed them, or put anything in their place: what cannot be flushed is not kept.
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with suppress(Exception):
                stream.flush()  # type: ignore[union-attr]  # None where there is none
        ctypes.CDLL(None).fflush(None)
        release_memory()
        return {"op": "flushed"}


def encoded(answer: dict[str, Any]) -> bytes:
    """An answer, ready to send. An output of so many parts that the judge would not read it is named instead."""
    data = encode(answer)
    # Shorter ones are read, and take no time here.
    if len(data) <= MAX_TEXT or "tree" not in answer:
        return data
    try:
        check_tree(answer["tree"])
        readable = len(data) <= MAX_FROM_WORKER_BYTES
    except WireViolation:
        readable = False
    return data if readable else encode({**answer, "tree": {"t": "opaque", "type": _TOO_LARGE}})


def main() -> int:
    """Serve the judge at KR_JUDGE_FD until it is gone."""
    install_if_asked()
    descriptor = int(os.environ.pop("KR_JUDGE_FD"))
    os.set_inheritable(descriptor, False)
    # When the judge is interrupted, the worker must not print a traceback of its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    channel = Channel(
        socket.socket(fileno=descriptor), max_bytes=MAX_FROM_JUDGE_BYTES, accept_descriptors=True, wake_fd=None
    )
    try:
        Worker(channel, own_cores=_OWN_CORES).serve()
    except PeerClosed:
        # Threads of the submission may still run, and would keep the interpreter from ending.
        os._exit(0)
    return 0
