"""The untrusted side: hosts the submission, calls it when told to, copies its output into the judge's memory.

Everything in this process may be rewritten by the submission once it is loaded, so nothing here decides anything: its
times are claims, its messages are checked by the judge, its text is shown as text. It holds no reference, no expected
output, no seed, no tolerance and no result descriptor. Started by the steward (or `local`) before any request is there;
imports torch at once.

What it answers on the socket in KR_JUDGE_FD:

    load    {files, submission}     -> loaded | failed
    load    {files, submission, compiled} -> loaded | failed              a library of the compiler's, see `compiled`
    gate    {}                      -> gated {pid}                        descriptors: memory of `gate`, a line
        on the line the worker sends a descriptor of its own memory, once, and gets those of inputs
    equip   {flush_bytes}           -> equipped {pid, gate}               descriptor: a page as of `gate`
        the caches of a device are emptied so; gate: why calls on it cannot begin at that page (null: they can)
    queue   {call, device, room, tree, storages, size} -> done | need | failed   descriptors: room, inputs to come
        one call on the device, enqueued before its inputs exist (see `device_gate`)
    arm     {size}                  -> armed                              descriptor: room for the output
        everything of earlier calls is dropped, the room is mapped, the next message is awaited spinning
    arm     {size, call, storages}  -> armed, done | failed               descriptor, or none: inputs to come
        what the last call's tree describes is put together over inputs that are not there yet: in the memory of the
        descriptor, or, without one, at addresses where the worker maps what it gets on the line; the call begins when
        the gate says so; where its output lies, and that it has ended, is said there before the second answer; if the
        gate says that the call is withdrawn, there is no second answer
    call    {tree, storages, size}  -> done | need {bytes} | failed       descriptor: inputs
        open, go and deliver in one
    room    {size}                  -> done | failed                      descriptor: larger room for the same output
    profile {room, limit_s}         -> profiled {table, trace, report, suffix} | failed   descriptor: room; after open
        limit_s: how long a vendor's profiler may take; null: none is used
    flush   {}                      -> flushed

and, where it is one rank of several:

    enroll  {rank, world_size, device} -> enrolled {pid}
    join    {meeting}               -> joined | failed                    enter a new process group
    open    {tree, storages, size}  -> opened | failed                    descriptor: inputs
    go      {at_ns, until_ns}       -> returned {claim_ns} | failed       begin at this moment
        stuck {text, waits} in between, once, if the kernel has not returned at the second moment
    deliver {}                      -> done | need {bytes} | failed
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

#: How long an armed worker asks the socket again and again before it sleeps.
SPIN_NS = 2_000_000
#: What the judge answers at once.
_SPIN_AFTER = ("armed", "opened", "returned")
#: How long a worker looks at the gate before it rests in between; a judge that was woken late is waited for.
FLAG_SPIN_NS = 20_000_000
#: A worker that has spun for long enough without being let in looks again so often.
_NAP_MS = 1
_L2_FLUSH_BYTES = 256 << 20
#: Starts `profiled` where the harness is.
_PROFILED = (
    "import sys; sys.path.insert(0, {!r}); from tasks.harness.worker.profile_target import main; sys.exit(main())"
)

Kernel = Callable[[Any], Any]

#: Tensors that are nothing else besides.
_OWN = (torch.Tensor, torch.nn.Parameter)
#: Room for one descriptor beside a message.
_RIGHTS_BYTES = socket.CMSG_SPACE(4)


def calibration_kernel(data: tuple[Any, ...]) -> Any:
    """What is called before a submission is loaded: spin for data[0] ns, return a copy of data[1][: data[2]].

    One copy where data[2] is a number, a list of them where it is a list.
    """
    spin_ns, payload, keep, *_ = data
    if payload.is_cuda:
        # Cycles of a clock of at most 2 GHz and more than 1: no shorter than a third of what is asked for.
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
    #: The same as the task made it, where the kernel takes something else.
    raw: Any
    #: Where the arena lies in this process.
    addresses: range
    #: Identity of each input storage -> its number.
    storages: Mapping[int, int]
    #: Keeps the storages alive, and so their identities unique, whatever the kernel does to its argument.
    views: Sequence[torch.Tensor]
    cuda: bool


class Worker:
    """The conversation with the judge."""

    def __init__(self, channel: Channel, *, own_cores: bool, kernel: Kernel | None = None) -> None:
        self._own_cores = own_cores
        self._channel = channel
        self._kernel: Kernel = kernel or calibration_kernel
        #: What the kernel takes in place of the inputs as the task made them.
        self._adapt: Callable[[Any], Any] = _as_it_is
        #: What was loaded, by its name in this directory.
        self._loaded: dict[str, str | None] = {"submission": None, "program": None}
        self._pending: Outgoing | None = None
        self._claim_ns = 0
        #: The last call's inputs; unmapped when the next call is armed, outside the time that is clocked.
        self._inputs: _Inputs | None = None
        self._output: Arena | None = None
        self._flags: CallFlags | None = None
        #: Where descriptors of inputs come from.
        self._descriptor_socket: socket.socket | None = None
        #: What the last call's inputs looked like, and its output, if that was plain tensors: container, then each.
        self._tree: Any = None
        self._like: tuple[type, tuple[tuple[torch.dtype, torch.Size], ...]] | None = None
        #: The call that begins when the gate says so, and what inputs that come on the line are to be mapped to.
        self._awaited: tuple[CallFlags, int] | None = None
        self._reserved: Arena | None = None
        #: The descriptor of the last inputs that came there.
        self._handed: int | None = None
        self._l2: torch.Tensor | None = None
        #: What empties a device's caches, as the judge says.
        self._flush_bytes: int | None = None
        self._driver: Driver | None = None
        self._stream_block: StreamBlock | None = None
        #: The last call on a device: its output may be asked for later.
        self._queued: StreamCallResult | None = None
        #: What the kernel has returned and the judge has not asked for yet.
        self._returned: object = None
        #: rank, world_size, device
        self._place: Mapping[str, Any] = {}
        self._stall_reporter: StallReporter | None = None
        #: Where all ranks start; a submission may go elsewhere.
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
            # Nothing was built ahead. What the compiler says is the submission's to read.
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
        # Where another process may not read this one's memory, this one may pass it on.
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
            raise RuntimeError("the judge asked for a call at a gate that is not there")
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
        # What waits for room goes on waiting: a call that is told of ahead may be withdrawn.
        self._inputs = self._output = self._returned = self._reserved = None
        if self._handed is not None:
            os.close(self._handed)
            self._handed = None
        if "call" not in message:
            self._output = _map(descriptors[0], message["size"])
            return {"op": "armed"}
        if self._flags is None:
            raise RuntimeError("the judge asked for a call at a gate that is not there")
        if descriptors:
            arena = _map(descriptors[0], message["size"])
        else:
            arena = self._reserved = Arena.reserve(message["size"])
        self._build_inputs(arena, message["storages"], self._tree)
        self._awaited = self._flags, message["call"]
        return {"op": "armed"}

    def _parts_like_last(self, output: object) -> list[tuple[int, int]] | None:
        """Address and bytes of each tensor of an output that looks like the last one, without describing it.

        Few questions, each asked once: this code is as cold as the kernel leaves it, and all of it is clocked.
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
            # Who has been kept waiting for so long is not worth a core any more.
            spin_ns = 0
            # The judge says nothing before it lets in or withdraws: what there is to read otherwise is its end.
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
                    # What was put off until somebody looks is the kernel's own work.
                    self._claim_ns = perf_counter_ns() - start
                parts = outgoing.parts
            flags.deliver(parts)
        except BaseException as error:  # noqa: BLE001 the harness boundary, as in serve
            flags.deliver(())
            flags.finish(call)
            return describe_failure(error)
        flags.finish(call)
        # What it is called is told in a message; its bytes are where the gate has said, and stay there.
        outgoing = outgoing or Outgoing.describe(output, {})
        self._returned = output, outgoing
        return {"op": "done", "tree": outgoing.tree, "claim_ns": self._claim_ns}

    def _map_inputs(self, reserved: Arena) -> None:
        """Map the inputs that have been sent."""
        if self._descriptor_socket is None:
            raise RuntimeError("the judge sends inputs on a line that is not there")
        _, found, _, _ = self._descriptor_socket.recvmsg(1, _RIGHTS_BYTES, socket.MSG_CMSG_CLOEXEC)
        self._handed = int.from_bytes(found[0][2], sys.byteorder)
        reserved.enter(self._handed)

    def _enroll(self, message: dict[str, Any], _: Sequence[int]) -> dict[str, Any]:
        self._place = {key: message[key] for key in ("rank", "world_size", "device")}
        become_rank(**self._place)
        # Ranks that share a core must not keep it from each other.
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
            # Device events would not see one rank wait for another; all ranks count from the same moment.
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
            # What was put off until somebody looks is the kernel's own work.
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
            raise RuntimeError("the judge offered room for an output nobody has")
        return self._deliver(outgoing, _map(descriptors[0], message["size"]))

    def _deliver(self, outgoing: Outgoing, output_arena: Arena) -> dict[str, Any]:
        outgoing.copy_to(output_arena)
        return {"op": "done", "tree": outgoing.tree, "claim_ns": self._claim_ns}

    def _flush_l2(self) -> None:
        if asked():
            # An emulated device has no cache of its own, and memory that takes its time.
            return
        if self._l2 is None:
            nbytes = flush_size(self._flush_bytes, torch.cuda.get_device_properties("cuda"))
            self._l2 = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        self._l2.zero_()

    def _reset_l2(self) -> None:
        """Take back what a submission has set aside of the cache, where the driver knows of such."""
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
        # The events see one stream; what others still had to do for this call is its time, too.
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
        # Half a compressed trace is none.
        trace = trace if len(trace) <= MAX_TRACE_BYTES else b""
        output_arena = _map(descriptors[0], message["output_size"])
        output_arena.fill(0, memoryview(table + trace + vendors.data))
        sizes = {"table": len(table), "trace": len(trace), "report": len(vendors.data)}
        return {"op": "profiled", **sizes, "suffix": vendors.suffix}

    def _vendors_profile(self, inputs: _Inputs, limit_s: float) -> Report:
        """One more call, in a process below the profiler that the device's vendor offers, if it is installed."""
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

    Twice what its GPU type states for all its caches; else twice what the driver says of its L2, and no less than is
    more than most have. Never more than an eighth of its memory.
    """
    known = max(_L2_FLUSH_BYTES, 2 * int(getattr(properties, "L2_cache_size", 0) or 0))
    wanted = known if stated is None else stated
    return min(wanted, int(properties.total_memory) // 8)


def _plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in _OWN and tensor.layout is torch.strided and tensor.is_cpu and tensor.dtype in DTYPES.values()


def _map(descriptor: int, size: int) -> Arena:
    """Map the judge's memory; the descriptor stays the caller's."""
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
    """Entry point: serve the judge at KR_JUDGE_FD until it is gone."""
    install_if_asked()
    descriptor = int(os.environ.pop("KR_JUDGE_FD"))
    os.set_inheritable(descriptor, False)
    # A judge that is gone must not leave a worker behind that prints a traceback of its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    channel = Channel(
        socket.socket(fileno=descriptor), max_bytes=MAX_FROM_JUDGE_BYTES, accept_descriptors=True, wake_fd=None
    )
    try:
        Worker(channel, own_cores=_OWN_CORES).serve()
    except PeerClosed:
        # Threads of the submission's may still run and would keep the interpreter from ending.
        os._exit(0)
    return 0
