"""The worker: hosts the submission, calls it when told to, copies its output into the judge's memory.

The submission may rewrite everything in this process once it is loaded, so nothing here decides anything. Its times are
claims, the judge checks its messages, and its text is shown as text. It holds no reference, no expected output, no
seed, no tolerance and no result descriptor. Init (or `local`) starts it before there is a request. It imports
torch at once.

Messages on the socket in KR_JUDGE_FD, and their answers:

    load           {files, submission, compiled} -> loaded | failed
        compiled: absent, or a library that the compiler makes (see `compiled`)
    open_flags     {}                      -> flags_open {pid}                descriptors: flags, a socket
        on that socket the worker sends a descriptor of its own memory, once, and gets descriptors of inputs
    prepare_device {flush_bytes}           -> device_prepared {pid, why_not}  descriptor: a page of flags
        flush_bytes: bytes to write to empty the device's caches; why_not: why its calls cannot begin by flags, or null
    queue          {call, device, output_size, tree, storages, size} -> done | need | failed
        descriptors: output arena, inputs to come; one call on the device, enqueued before its inputs exist (see
        `stream_block`)
    arm            {size}                  -> armed                           descriptor: output arena
        drops everything of earlier calls, maps the output arena, and spins for the next message
    arm            {size, call, storages}  -> armed, done | failed            descriptor, or none: inputs to come
        builds the inputs that the last call's tree describes, over memory that holds no inputs yet: the memory of the
        descriptor, or, without one, addresses where the worker maps the descriptor that it gets on the socket. The call
        begins when the flags say so. The flags also say where its output lies and that it has ended, before the second
        answer. If the flags say that the call is withdrawn, there is no second answer.
    call           {tree, storages, size}  -> done | need {bytes} | failed    descriptor: inputs
        open, go and deliver in one
    output_arena   {size}                  -> done | failed                   descriptor: a larger arena, same output
    profile        {output_size, limit_s}  -> profiled {table, trace, report, suffix} | failed
        descriptor: output arena; after open; limit_s: seconds for a vendor's profiler, null: none is used
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
import gzip
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from tasks.harness.shared.cores import leave_judge_core

# Before torch counts the cores for its threads; only in a process that a judge waits for.
_OWN_CORES = "KR_JUDGE_FD" in os.environ and leave_judge_core()

import torch  # noqa: E402 see above

from tasks.harness.emulate import asked, install_if_asked  # noqa: E402 see above
from tasks.harness.shared.arenas import Arena  # noqa: E402 see above
from tasks.harness.shared.call_flags import FLAGS_BYTES, CallFlags  # noqa: E402 see above
from tasks.harness.shared.process_groups import become_rank, join_group, leave_group  # noqa: E402 see above
from tasks.harness.shared.profilers import Report, choose, missing, run  # noqa: E402 see above
from tasks.harness.shared.values import DTYPES, Outgoing, identity, unpack  # noqa: E402 see above
from tasks.harness.shared.wire import (  # noqa: E402 see above
    MAX_FROM_JUDGE_BYTES,
    MAX_REPORT_BYTES,
    MAX_TABLE_BYTES,
    MAX_TRACE_BYTES,
    Channel,
    PeerClosed,
    encode,
)

from .compiled import CompileFailed, compile_sources, flatten, load_library  # noqa: E402 see above
from .cuda_driver import Driver, DriverError, try_out  # noqa: E402 see above
from .failures import HARNESS, describe_failure, failed  # noqa: E402 see above
from .loading import import_submission  # noqa: E402 see above
from .profile_target import write as write_call  # noqa: E402 see above
from .stalls import StallReporter  # noqa: E402 see above
from .stream_block import IDLE_NS, StreamBlock, StreamCall, StreamCallResult  # noqa: E402 see above

#: How long an armed worker polls the socket before it sleeps.
SPIN_NS = 2_000_000
#: Answers after which the judge sends its next message at once.
_SPIN_AFTER = ("armed", "opened", "returned")
#: How long a worker spins on the flags before it sleeps in between. Long enough for a judge that woke up late.
FLAG_SPIN_NS = 20_000_000
#: Milliseconds between two looks at the flags after that.
_NAP_MS = 1
_L2_FLUSH_BYTES = 256 << 20
#: Starts `profile_target` where the harness is.
_PROFILED = (
    "import sys; sys.path.insert(0, {!r}); from tasks.harness.worker.profile_target import main; sys.exit(main())"
)

Kernel = Callable[[Any], Any]

#: Classes of plain tensors.
_OWN = (torch.Tensor, torch.nn.Parameter)
#: Size of the ancillary data for one descriptor.
_RIGHTS_BYTES = socket.CMSG_SPACE(4)


def calibration_kernel(data: tuple[Any, ...]) -> Any:
    """The kernel before a submission is loaded: spin for data[0] ns, return a copy of data[1][: data[2]].

    If data[2] is a list, return a list with one copy for each number in it.
    """
    spin_ns, payload, keep, *_ = data
    if payload.is_cuda:
        # Cycles of a clock between 1 and 2 GHz: at least a third of the time that is asked for.
        torch.cuda._sleep(int(spin_ns))  # type: ignore[no-untyped-call]  # noqa: SLF001 torch lacks both
        spin_ns = 0
    until = perf_counter_ns() + spin_ns
    while perf_counter_ns() < until:
        pass
    if isinstance(keep, list):
        return [payload[:each].clone() for each in keep]
    return payload[:keep].clone()


def _as_it_is(data: Any) -> Any:
    return data


@dataclass(kw_only=True)
class _Inputs:
    """One call's inputs, as tensors over the judge's memory."""

    value: Any
    #: As the task made it, where the kernel takes another form.
    raw: Any
    #: Addresses of the arena in this process.
    addresses: range
    #: Identity of each input storage -> its number.
    storages: Mapping[int, int]
    #: Keeps the storages alive, so that their identities stay unique whatever the kernel does to its argument.
    views: Sequence[torch.Tensor]
    cuda: bool


class Worker:
    """Answers the judge's messages."""

    def __init__(self, channel: Channel, *, own_cores: bool, kernel: Kernel | None = None) -> None:
        self._own_cores = own_cores
        self._channel = channel
        self._kernel: Kernel = kernel or calibration_kernel
        #: Makes the kernel's argument from the inputs as the task made them.
        self._adapt: Callable[[Any], Any] = _as_it_is
        #: Names, in this directory, of what was loaded.
        self._loaded: dict[str, str | None] = {"submission": None, "program": None}
        self._pending: Outgoing | None = None
        self._claim_ns = 0
        #: The last call's inputs. Unmapped when the next call is armed, outside the timed span.
        self._inputs: _Inputs | None = None
        self._output: Arena | None = None
        self._flags: CallFlags | None = None
        #: The socket for descriptors of inputs.
        self._descriptor_socket: socket.socket | None = None
        #: The tree of the last call's inputs. And what its output was, if plain tensors: container, then each tensor.
        self._tree: Any = None
        self._like: tuple[type, tuple[tuple[torch.dtype, torch.Size], ...]] | None = None
        #: The call that begins when the flags say so, and the addresses for inputs that come as a descriptor.
        self._awaited: tuple[CallFlags, int] | None = None
        self._reserved: Arena | None = None
        #: The descriptor of the last inputs that came on the socket.
        self._handed: int | None = None
        self._l2: torch.Tensor | None = None
        #: Bytes to write to empty a device's caches, as the judge says.
        self._flush_bytes: int | None = None
        self._driver: Driver | None = None
        self._stream_block: StreamBlock | None = None
        #: The last call on a device. Its output may be asked for later.
        self._queued: StreamCallResult | None = None
        #: The kernel's return value, until the judge asks for it.
        self._returned: object = None
        #: rank, world_size, device
        self._place: Mapping[str, Any] = {}
        self._stall_reporter: StallReporter | None = None
        #: The directory where all ranks start. A submission may change its own.
        self._home = Path.cwd()

    def serve(self) -> None:
        """Answer until the judge is gone."""
        handlers: Mapping[str, Callable[[dict[str, Any], Sequence[int]], dict[str, Any]]] = {
            "load": self._load,
            "open_flags": self._open_flags,
            "prepare_device": self._prepare_device,
            "queue": self._queue,
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
                answer = describe_failure(error)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            spin_ns = SPIN_NS if answer["op"] in _SPIN_AFTER and self._own_cores else 0
            self._channel.send(encode(answer))
            if self._awaited is not None:
                (flags, call), self._awaited = self._awaited, None
                if self._wait_for_release(flags, call):
                    self._channel.send(encode(self._call_by_flags(flags, call)))

    def _load(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        directory = Path.cwd()
        for name, text in message["files"].items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if message.get("compiled") is not None:
            self._load_compiled(directory, message["compiled"])
            return {"op": "loaded"}
        module = import_submission(directory, message["submission"])
        if module is None:
            return failed("runtime_error", f"{message['submission']} is no Python file; expected a name that ends .py")
        kernel = getattr(module, "custom_kernel", None)
        if not callable(kernel):
            found = "nothing of that name" if kernel is None else f"a {type(kernel).__name__}"
            return failed("runtime_error", f"the submission defines no function custom_kernel (found {found})")
        self._kernel = kernel
        self._loaded = {"submission": message["submission"], "program": None}
        return {"op": "loaded"}

    def _load_compiled(self, directory: Path, compiled: Mapping[str, Any]) -> None:
        program = directory / compiled["program"]
        if not program.exists():
            # Nothing was built ahead. The submission's author may read the compiler's output.
            try:
                said = compile_sources(compiled["argv"], directory)
            except CompileFailed as error:
                sys.stderr.write(error.said)
                raise
            sys.stderr.write(said)
        self._kernel, self._adapt = load_library(program), flatten
        self._loaded = {"submission": None, "program": compiled["program"]}

    def _open_flags(self, _: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        self._flags = CallFlags(_map(descriptors[0], FLAGS_BYTES))
        self._descriptor_socket = socket.socket(fileno=os.dup(descriptors[1]))
        # Other processes may be forbidden to open this one's memory, so this one passes a descriptor on.
        with suppress(OSError), open("/proc/self/mem", "rb", buffering=0) as memory:  # noqa: PTH123 no path is made
            socket.send_fds(self._descriptor_socket, [b"m"], [memory.fileno()])
        return {"op": "flags_open", "pid": os.getpid()}

    def _prepare_device(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        self._flush_bytes = message["flush_bytes"]
        return {"op": "device_prepared", "pid": os.getpid(), "why_not": self._open_stream_block(descriptors)}

    def _open_stream_block(self, descriptors: Sequence[int]) -> str | None:
        if not descriptors:
            return "no page was given"
        if torch.version.cuda is None:
            return "this torch is not for CUDA: streams of its devices cannot wait for memory of the judge's"
        why_not = try_out()
        if why_not is not None:
            return why_not
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]  # torch lacks it
            # Makes the context current in this thread.
            torch.cuda.synchronize()
            self._driver = Driver.open()
            self._stream_block = StreamBlock(self._driver, _map(descriptors[0], FLAGS_BYTES))
        except (DriverError, RuntimeError) as error:
            return str(error)
        return None

    def _queue(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        if self._stream_block is None:
            raise RuntimeError("the judge asked for a call by flags that are not open")
        self._pending = self._inputs = self._output = self._returned = self._queued = None
        output_arena, inputs = _map(descriptors[0], message["output_size"]), _map(descriptors[1], message["size"])
        self._reset_l2()
        order = StreamCall(
            call=message["call"],
            tree=message["tree"],
            storages=message["storages"],
            device=message["device"],
            inputs=inputs,
            output_arena=output_arena,
        )
        made = self._stream_block.make(order, self._kernel, adapt=self._adapt, flush=self._flush_l2)
        self._claim_ns, self._queued = made.claim_ns, made
        if not made.delivered:
            self._pending = made.outgoing
            return {"op": "need", "bytes": made.outgoing.nbytes}
        return {"op": "done", "tree": made.outgoing.tree, "claim_ns": self._claim_ns}

    def _arm(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        # `_pending` stays: its output still needs a larger arena, and the announced call may be withdrawn.
        self._inputs = self._output = self._returned = self._reserved = None
        if self._handed is not None:
            os.close(self._handed)
            self._handed = None
        if "call" not in message:
            self._output = _map(descriptors[0], message["size"])
            return {"op": "armed"}
        if self._flags is None:
            raise RuntimeError("the judge asked for a call by flags that are not open")
        if descriptors:
            arena = _map(descriptors[0], message["size"])
        else:
            arena = self._reserved = Arena.reserve(message["size"])
        self._build_inputs(arena, message["storages"], self._tree)
        self._awaited = self._flags, message["call"]
        return {"op": "armed"}

    def _parts_like_last(self, output: object) -> list[tuple[int, int]] | None:
        """Address and bytes of each tensor of an output like the last one; None if it is not like that.

        Short on purpose: the kernel leaves cold caches, and all of this is inside the timed span.
        """
        if self._like is None or type(output) is not self._like[0]:
            return None
        items: Sequence[Any] = output if isinstance(output, (tuple, list)) else (output,)
        if len(items) != len(self._like[1]):
            return None
        parts = []
        for item, like in zip(items, self._like[1], strict=True):
            if (
                type(item) not in _OWN
                or item.layout is not torch.strided
                or (item.dtype, item.shape) != like
                or not item.is_cpu
                or item.is_conj()
                or item.is_neg()
                or not item.is_contiguous()
            ):
                return None
            parts.append((item.data_ptr(), item.nbytes))
        return parts

    def _wait_for_release(self, flags: CallFlags, call: int) -> bool:
        """Wait until the call may begin; False if it is withdrawn."""
        spin_ns = FLAG_SPIN_NS
        while not flags.released(call, spin_ns=spin_ns):
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

    def _call_by_flags(self, flags: CallFlags, call: int) -> dict[str, Any]:
        inputs, kernel = self._opened(), self._kernel
        value, reserved = inputs.value, self._reserved
        try:
            if reserved is not None:
                self._map_inputs(reserved)
            start = perf_counter_ns()
            output = kernel(value)
            self._claim_ns = perf_counter_ns() - start
            outgoing, parts = None, self._parts_like_last(output)
            if parts is None:
                outgoing = self._describe_output(output, {})
                if outgoing.put_off:
                    # Lazy work that is done when the output is described is the kernel's own.
                    self._claim_ns = perf_counter_ns() - start
                parts = outgoing.parts
            flags.deliver(parts)
        except BaseException as error:  # noqa: BLE001 the harness boundary, as in serve
            flags.deliver(())
            flags.finish(call)
            return describe_failure(error)
        flags.finish(call)
        # The description follows in a message. The bytes stay where the flags have said.
        outgoing = outgoing or Outgoing.describe(output, {})
        self._returned = output, outgoing
        return {"op": "done", "tree": outgoing.tree, "claim_ns": self._claim_ns}

    def _map_inputs(self, reserved: Arena) -> None:
        """Map the inputs whose descriptor has been sent."""
        if self._descriptor_socket is None:
            raise RuntimeError("the judge sends inputs on a socket that is not open")
        _, found, _, _ = self._descriptor_socket.recvmsg(1, _RIGHTS_BYTES, socket.MSG_CMSG_CLOEXEC)
        self._handed = int.from_bytes(found[0][2], sys.byteorder)
        reserved.enter(self._handed)

    def _enroll(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        self._place = {key: message[key] for key in ("rank", "world_size", "device")}
        become_rank(**self._place)
        # Ranks that share a core must not spin on it.
        self._own_cores = self._own_cores and len(os.sched_getaffinity(0)) >= message["world_size"]
        self._stall_reporter = StallReporter(self._channel)
        return {"op": "enrolled", "pid": os.getpid()}

    def _join(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        leave_group()
        join_group(self._home / message["meeting"], **self._place)
        return {"op": "joined"}

    def _receive_inputs(self, message: dict[str, Any], descriptor: int) -> _Inputs:
        return self._build_inputs(_map(descriptor, message["size"]), message["storages"], message["tree"])

    def _build_inputs(self, arena: Arena, storages: Sequence[tuple[int, int]], tree: Any) -> _Inputs:
        views = [arena.bytes_at(offset, nbytes) for offset, nbytes in storages]
        raw = unpack(tree, views)
        self._tree = tree
        cuda = any(node["device"] != "cpu" for node in _tensor_nodes(tree))
        identities = {identity(view): number for number, view in enumerate(views) if view.numel()}
        self._inputs = _Inputs(
            value=self._adapt(raw),
            raw=raw,
            addresses=arena.addresses,
            storages={} if cuda else identities,
            views=views,
            cuda=cuda,
        )
        return self._inputs

    def _open(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        if self._receive_inputs(message, descriptors[0]).cuda:
            self._reset_l2()
            self._flush_l2()
            torch.cuda.synchronize()
        return {"op": "opened"}

    def _go(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        inputs = self._opened()
        kernel, value, at = self._kernel, inputs.value, message["at_ns"]
        with self._reporting_stalls(message["until_ns"]):
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
            output = self._timed_on_device(kernel, value)
        else:
            start = perf_counter_ns()
            output = kernel(value)
            self._claim_ns = perf_counter_ns() - start
        return self._return_output(output, inputs)

    def _reporting_stalls(self, until_ns: int) -> AbstractContextManager[None]:
        if self._stall_reporter is None:
            raise RuntimeError("the judge asked for a call of a rank that is none")
        return self._stall_reporter.until(until_ns)

    def _opened(self) -> _Inputs:
        if self._inputs is None:
            raise RuntimeError("the judge asked for a call without inputs")
        return self._inputs

    def _return_output(self, output: object, inputs: _Inputs) -> dict[str, Any]:
        start = perf_counter_ns()
        outgoing = self._describe_output(output, inputs.storages)
        if outgoing.put_off:
            if inputs.cuda:
                torch.cuda.synchronize()
            # Lazy work that is done when the output is described is the kernel's own.
            self._claim_ns += perf_counter_ns() - start
        return self._return_described(outgoing)

    def _describe_output(self, output: object, storages: Mapping[int, int]) -> Outgoing:
        items = output if isinstance(output, (tuple, list)) else (output,)
        like = tuple((item.dtype, item.shape) for item in items if isinstance(item, torch.Tensor) and _plain(item))
        self._like = (type(output), like) if len(like) == len(items) else None
        return Outgoing.describe(output, storages)

    def _return_described(self, outgoing: Outgoing) -> dict[str, Any]:
        if self._output is None or outgoing.nbytes > self._output.size:
            self._pending = outgoing
            return {"op": "need", "bytes": outgoing.nbytes}
        return self._deliver(outgoing, self._output)

    def _larger_output_arena(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        outgoing, self._pending = self._pending, None
        if outgoing is None:
            raise RuntimeError("the judge offered an arena, but no output waits for one")
        return self._deliver(outgoing, _map(descriptors[0], message["size"]))

    def _deliver(self, outgoing: Outgoing, output_arena: Arena) -> dict[str, Any]:
        outgoing.copy_to(output_arena)
        return {"op": "done", "tree": outgoing.tree, "claim_ns": self._claim_ns}

    def _flush_l2(self) -> None:
        if asked():
            # An emulated device has no cache of its own, and writing its memory is slow.
            return
        if self._l2 is None:
            nbytes = flush_size(self._flush_bytes, torch.cuda.get_device_properties("cuda"))
            self._l2 = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        self._l2.zero_()

    def _reset_l2(self) -> None:
        """Undo a submission's reservation of the cache, where the driver has such reservations."""
        if self._driver is None and torch.version.cuda is not None and not asked():
            with suppress(DriverError):
                self._driver = Driver.open()
        if self._driver is not None:
            self._driver.reset_persisting_l2()

    def _timed_on_device(self, kernel: Kernel, value: object) -> object:
        self._reset_l2()
        self._flush_l2()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch lacks it
        torch.cuda.synchronize()
        start.record()
        output = kernel(value)
        end.record()
        end.synchronize()
        ended = perf_counter_ns()
        torch.cuda.synchronize()
        late = perf_counter_ns() - ended
        # The events see one stream. Work of other streams for this call counts, too.
        self._claim_ns = round(start.elapsed_time(end) * 1e6) + (late if late > IDLE_NS else 0)
        return output

    def _profile(self, message: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        inputs = self._opened()
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
            self._kernel(inputs.value)
            if inputs.cuda:
                torch.cuda.synchronize()
        order = "cuda_time_total" if inputs.cuda else "cpu_time_total"
        text = profiler.key_averages().table(sort_by=order, row_limit=40)
        vendors = Report(text="")
        if inputs.cuda and message["limit_s"] is not None and not asked():
            vendors = self._vendors_profile(inputs, message["limit_s"])
        table = f"{text}\n{vendors.text}".rstrip().encode()[:MAX_TABLE_BYTES]
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "trace.json"
            profiler.export_chrome_trace(str(path))
            trace = gzip.compress(path.read_bytes(), compresslevel=6)
        # A part of a compressed trace is of no use.
        trace = trace if len(trace) <= MAX_TRACE_BYTES else b""
        output_arena = _map(descriptors[0], message["output_size"])
        output_arena.fill(0, memoryview(table + trace + vendors.data))
        sizes = {"table": len(table), "trace": len(trace), "report": len(vendors.data)}
        return {"op": "profiled", **sizes, "suffix": vendors.suffix}

    def _vendors_profile(self, inputs: _Inputs, limit_s: float) -> Report:
        """One more call, in a process below the vendor's profiler, if that is installed."""
        hip = torch.version.hip is not None
        tool = choose(hip=hip)
        if tool is None:
            return Report(text=missing(hip=hip))
        with tempfile.TemporaryDirectory() as directory:
            call, made = (Path(directory) / name for name in ("call", "made"))
            call.mkdir()
            made.mkdir()
            write_call(call, **self._loaded, data=inputs.raw)
            target = (sys.executable, "-P", "-c", _PROFILED.format(str(Path(HARNESS).parents[1])), str(call))
            return run(tool, target, made, limit_s=limit_s, most_bytes=MAX_REPORT_BYTES)

    def _flush(self, _: dict[str, Any], __: Sequence[int]) -> dict[str, Any]:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        ctypes.CDLL(None).fflush(None)
        return {"op": "flushed"}


def flush_size(stated: int | None, properties: Any) -> int:
    """Bytes to write so that nothing of the inputs is left in a device's caches.

    `stated` by the GPU type; else twice the size of the L2 cache by the driver, and at least a size that is larger than
    most caches. Never more than an eighth of the device's memory.
    """
    known = max(_L2_FLUSH_BYTES, 2 * int(getattr(properties, "L2_cache_size", 0) or 0))
    wanted = known if stated is None else stated
    return min(wanted, int(properties.total_memory) // 8)


def _plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in _OWN and tensor.layout is torch.strided and tensor.is_cpu and tensor.dtype in DTYPES.values()


def _map(descriptor: int, size: int) -> Arena:
    """Map the judge's memory. The caller keeps the descriptor."""
    arena = Arena(descriptor, size)
    arena.forget()
    return arena


def _tensor_nodes(tree: Any) -> Sequence[Mapping[str, Any]]:
    if tree["t"] == "tensor":
        return [tree]
    items = tree.get("items", [])
    children = [item for _, item in items] if tree["t"] in ("dict", "record") else items
    return [node for child in children for node in _tensor_nodes(child)]


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
