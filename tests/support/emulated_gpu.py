"""A CUDA device on the host with streams that wait: what `tasks.harness.emulate` lacks, for tests of calls on a device.

Each process has one stream, a thread that does one thing after another. Device memory that processes share is a file in
shared memory. Time is virtual, so that no load of the machine changes it: a stream's clock moves by what its work costs
by `COPY_NS_A_BYTE` and `spend_ns`, and by `SWITCH_NS` when it goes on after a number that another process wrote.

A kernel cannot be enqueued on a processor. It runs at once, over whatever the inputs' memory holds, to learn the shape
of its output, and again in the stream, where its result is copied to that output.

`start` is for `tasks.harness.local`. Judge and worker run as they are; replaced are the driver, the events, the
launches of copies, and what asks the host's clock or /proc. The variable EMULATED_GPU_WITHOUT takes defences away,
whose names are in `_without`.

EMULATED_GPU_COSTS=h100 makes the device's operations take real time, as many times what they take on that device as
`SLOWED` says: beside that, what the emulation itself takes is little.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from runner.extras.boards.fork_server import ForkServers
from tasks.harness.local import Started
from tasks.harness.shared.cuda_driver import DriverError

SWITCH_NS = 144_000
COPY_NS_A_BYTE = 2 / 3000
_ROOT = Path(__file__).resolve().parents[2]
FLUSH_NS = 50_000
#: From so long on, work takes as much real time.
_SEEN_NS = 1_000_000
#: Where a number's time stands, from the number.
_TIME_AT = 32


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What operations of a device take, in seconds. All of it is waiting: the host has cores for its driver."""

    #: A process's context, and the part of it in which no other process makes one.
    context_s: float = 0.0
    context_alone_s: float = 0.0
    #: The judge's first use of the kernels with which it compares.
    first_use_s: float = 0.0
    #: A timed call of a worker, by flags or by message, with all that driver and hosts do for it; another order.
    call_s: float = 0.0
    order_s: float = 0.0


#: By device. H100: 2026-11-26, 467db128, of a group of eight without container (docs/measurements.md).
COSTS: Final[Mapping[str, Costs]] = {
    "h100": Costs(
        # Seven workers in 1.27 s, less what killing and forking take.
        context_s=0.16,
        # Not measured. On an H200 three contexts side by side seem to take more than twice as long as one.
        context_alone_s=0.08,
        # What is left of the 2.0 s before the first candidate.
        first_use_s=0.5,
        # 142 calls of a calibration in 0.55 s; 20 and 100 timed calls differ by 0.3 s (tests/fixtures/devices).
        call_s=0.0038,
        # Two for each of 56 outputs that were compared in 0.23 s.
        order_s=0.002,
    )
}
_COSTS = COSTS.get(os.environ.get("EMULATED_GPU_COSTS", ""))
#: How many times as long as on the device everything takes that `COSTS` names.
SLOWED: Final = 10
#: Whether processes have the device at the same time, as under a multi-process service.
SHARES = bool(os.environ.get("EMULATED_GPU_SHARED"))


class Stream:
    """The stream of this process."""

    def __init__(self) -> None:
        self.now_ns = 0.0
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: Numbers that other processes see when this one no longer has the device.
        self._unseen: list[tuple[int, int]] = []
        #: What is done when this process has the device again after a call.
        self.afterwards: list[Callable[[], None]] = []
        #: How many waits for a number are in it.
        self.blocks = 0

    @property
    def used(self) -> bool:
        """Whether this process has given it any work."""
        return self._thread is not None

    def submit(self, work: Callable[[], None]) -> None:
        """Do something after all earlier work."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._work.put(work)

    def drain(self) -> None:
        """Wait until all work is done."""
        while self.afterwards:
            self.submit(self.afterwards.pop())
        done = threading.Event()
        self.submit(done.set)
        done.wait()

    def spend(self, nanoseconds: float) -> None:
        """Let time pass, for work that runs in the stream. The host's clock sees kernels of milliseconds, too."""
        if in_stream():
            self.now_ns += nanoseconds
            if nanoseconds >= _SEEN_NS:
                time.sleep(nanoseconds / 1e9)

    def write(self, pointer: int, value: int) -> None:
        """Write a number. Another process goes on when this one has nothing more to do, or waits."""
        self._unseen.append((pointer, value))
        if SHARES:
            self.give_turn()

    def give_turn(self) -> None:
        """Let another process have the device."""
        for pointer, value in self._unseen:
            ctypes.c_uint64.from_address(pointer + _TIME_AT).value = round(self.now_ns)
            ctypes.c_uint32.from_address(pointer).value = value
        self._unseen.clear()

    def _run(self) -> None:
        while True:
            if self._work.empty():
                self.give_turn()
            self._work.get()()


STREAM = Stream()


def spend_ns(nanoseconds: float) -> None:
    """What a kernel of a test takes."""
    STREAM.spend(nanoseconds)


def flush() -> None:
    """What a worker does to empty the caches, where the judge leaves it that."""
    STREAM.spend(FLUSH_NS)


def _flush(_: torch.Tensor) -> None:
    STREAM.submit(flush)


def in_stream() -> bool:
    """Whether a kernel runs in the stream, and not at once: to learn its shape, or for a call by message."""
    return threading.current_thread() is STREAM._thread


def write_later(write: Callable[[torch.Tensor], None]) -> None:
    """What a kernel in the stream writes to its output when the judge has had the device again, after the end."""
    _later.append(write)


#: By the kernel that runs now.
_later: list[Callable[[torch.Tensor], None]] = []


class Lazy(torch.Tensor):
    """The output of a kernel that does not begin before somebody reads it."""

    #: Enqueues the kernel; its output.
    enqueue: Callable[[], torch.Tensor]

    @classmethod
    def __torch_function__(
        cls,
        func: Any,  # noqa: ANN401 any function of torch, and what it returns
        types: Any,  # noqa: ANN401 see above
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 see above
        """Every use of one."""
        if func is torch.Tensor.copy_ and isinstance(args[1], Lazy):
            return args[1].enqueue()
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]  # torch lacks it


def lazily(kernel: Callable[[], torch.Tensor], *, like: torch.Tensor) -> torch.Tensor:
    """The output of a kernel that begins when it is read."""
    from tasks.harness.emulate.mode import mark

    made: Any = torch.empty_like(like).as_subclass(Lazy)
    mark(made, cuda=True)
    made.enqueue = kernel
    return made  # type: ignore[no-any-return]  # see above


class Event:
    """torch.cuda.Event on that stream."""

    def __init__(self, enable_timing: bool = False) -> None:  # noqa: FBT002 torch's signature
        del enable_timing
        self._at_ns = 0.0
        self._passed = threading.Event()

    def record(self, stream: object = None) -> None:
        """Note the stream's time."""
        del stream
        self._passed.clear()

        def note() -> None:
            self._at_ns = STREAM.now_ns
            self._passed.set()

        STREAM.submit(note)

    def query(self) -> bool:
        """Whether the stream has come to it."""
        return self._passed.is_set()

    def synchronize(self) -> None:
        """Wait for it."""
        self._passed.wait()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds until another one."""
        return (end._at_ns - self._at_ns) / 1e6


class Memory:
    """Shared memory that stands for memory of the device, by address. It goes with the processes."""

    def __init__(self) -> None:
        self._files: dict[range, str] = {}
        self._maps: list[mmap.mmap] = []
        self._used: list[range] = []
        self._free: dict[int, list[range]] = {}

    def create(self, nbytes: int) -> range:
        """New memory; its addresses."""
        fd = os.memfd_create("emulated-gpu")
        os.truncate(fd, max(nbytes, 1))
        return self.open(f"/proc/{os.getpid()}/fd/{fd}")

    def create_for_call(self, nbytes: int) -> range:
        """Memory that may be used again once `end_call` has said so. It holds what the last call left there."""
        free = self._free.get(nbytes)
        made = free.pop() if free else self.create(nbytes)
        self._used.append(made)
        return made

    def end_call(self) -> None:
        """Earlier calls need their memory no longer."""
        for place in self._used:
            self._free.setdefault(len(place), []).append(place)
        self._used.clear()

    def open(self, name: str) -> range:
        """The same memory in this process."""
        with open(name, "r+b") as file:  # noqa: PTH123 a short name
            made = mmap.mmap(file.fileno(), 0)
        self._maps.append(made)
        start = ctypes.addressof(ctypes.c_char.from_buffer(made))
        self._files[range(start, start + len(made))] = name
        return range(start, start + len(made))

    def name_of(self, address: int) -> tuple[str, int]:
        """The file of an address, and the offset in it."""
        return next((name, address - place.start) for place, name in self._files.items() if address in place)


MEMORY = Memory()


class Driver:
    """The part of `cuda_driver.Driver` that calls on a device need."""

    def register(self, address: int, nbytes: int) -> int:
        """The same address."""
        del nbytes
        return address

    def unregister(self, address: int) -> None:
        """Nothing to undo."""

    def reset_persisting_l2(self) -> None:
        """There is no cache."""

    def wait_for(self, stream: int, pointer: int, value: int) -> None:
        """Block the stream until the number is there; then the device changes to this process."""
        del stream
        number = ctypes.c_uint32.from_address(pointer)

        def wait() -> None:
            STREAM.give_turn()
            while number.value < value:
                time.sleep(20e-6)
            written = ctypes.c_uint64.from_address(pointer + _TIME_AT).value
            STREAM.now_ns = max(STREAM.now_ns, written) + SWITCH_NS
            STREAM.blocks -= 1

        STREAM.blocks += 1
        STREAM.submit(wait)

    def write(self, stream: int, pointer: int, value: int) -> None:
        """Write the number, and its time before."""
        del stream

        STREAM.submit(lambda: STREAM.write(pointer, value))

    def allocate(self, nbytes: int) -> range:
        """Shared memory."""
        return MEMORY.create(nbytes)

    def free(self, address: int) -> None:
        """It goes with the process."""

    def export(self, address: int) -> tuple[bytes, int]:
        """The file's name, as a handle."""
        if os.environ.get("EMULATED_GPU_PRIVATE"):
            raise DriverError("cuIpcGetMemHandle failed with CUresult 801")
        name, offset = MEMORY.name_of(address)
        return name.encode().ljust(64, b"\0"), offset

    def open_handle(self, handle: bytes) -> range:
        """Map the file of that name."""
        return MEMORY.open(handle.rstrip(b"\0").decode())

    def close_handle(self, address: int) -> None:
        """It goes with the process."""


def _over(addresses: range, offset: int, nbytes: int) -> torch.Tensor:
    """`device_bytes` of the harness."""
    from tasks.harness.emulate.mode import mark

    if offset < 0 or nbytes < 0 or offset + nbytes > len(addresses):
        raise ValueError(f"bytes {offset} to {offset + nbytes} are not inside an allocation of {len(addresses)}")
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8, device="cuda")
    made = torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(addresses.start + offset), dtype=torch.uint8)
    mark(made, cuda=True)
    return made


def _launch(source: torch.Tensor, target: torch.Tensor) -> None:
    """A kernel of the judge's. The driver loads it at its first launch, and waits for the device to be idle then.

    Raises:
        RuntimeError: it would wait for ever, behind a block that only this thread takes away.
    """
    addresses = source.data_ptr() | target.data_ptr()
    # torch has one for each data type and alignment.
    kernel = (source.dtype, min(addresses & -addresses, _MOST_ALIGNED))
    if kernel not in _loaded:
        if STREAM.blocks:
            raise RuntimeError(f"a copy of {kernel} was never launched before its stream was blocked")
        _loaded.add(kernel)

    def work() -> None:
        STREAM.spend(source.numel() * source.element_size() * COPY_NS_A_BYTE)
        target.copy_(source)

    STREAM.submit(work)


_MOST_ALIGNED = 64
#: Kernels of this process that have been launched.
_loaded: set[tuple[torch.dtype, int]] = set()


def _enqueued(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A kernel of one output tensor, as work of the stream."""

    def enqueue(value: Any) -> Any:  # noqa: ANN401 whatever a task hands over
        first = kernel(value)
        nbytes = first.numel() * first.element_size()
        addresses = MEMORY.create_for_call(nbytes)
        output = _over(addresses, 0, nbytes).view(first.dtype).view(first.shape)

        def run(now: Callable[[], torch.Tensor]) -> torch.Tensor:
            def work() -> None:
                # Whether gradients are wanted is the calling thread's own setting.
                with torch.no_grad():
                    output.copy_(now())
                STREAM.afterwards += [partial(write, output) for write in _later]
                _later.clear()

            STREAM.submit(work)
            return output

        if isinstance(first, Lazy):
            return lazily(partial(run, first.enqueue), like=output)
        return run(partial(kernel, value))

    return enqueue


#: Processes that have a context: this one, if it has.
_contexts: set[int] = set()


def make_context(*_: object) -> None:
    """What a process's first use of the device takes."""
    if os.getpid() not in _contexts:
        _contexts.add(os.getpid())
        _spend_context()


def _spend_context() -> None:
    if _COSTS is None:
        return
    time.sleep(SLOWED * (_COSTS.context_s - _COSTS.context_alone_s))
    with Path(__file__).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(SLOWED * _COSTS.context_alone_s)


def _spend_in_judge(costs: Costs) -> None:
    """Make what a judge does take as long as on a device, beside the contexts."""
    from runner.extras.trainers.inside.judge import evaluation
    from tasks.harness.judge import device_calls, worker_client

    changed: Any = (device_calls, evaluation, worker_client.WorkerClient)
    device, modules, client = changed
    device._WARM_UP_NS *= SLOWED
    prepare, call = modules.prepare, client.call

    def prepare_slowly(*arguments: object, **options: object) -> object:
        time.sleep(SLOWED * costs.first_use_s)
        return prepare(*arguments, **options)

    def call_slowly(*arguments: object, **options: object) -> object:
        until = time.monotonic() + SLOWED * (costs.call_s if options.get("ahead", True) else costs.order_s)
        try:
            return call(*arguments, **options)
        finally:
            time.sleep(max(until - time.monotonic(), 0.0))

    modules.prepare, client.call = prepare_slowly, call_slowly


def _try_out() -> str | None:
    """What `cuda_driver.try_out` hears from its fork: no use of a device survives one."""
    _spend_context()
    if os.environ.get("EMULATED_GPU_DEAF"):
        return "the device did not see a number in the host's memory"
    return "DriverError: cuInit failed with CUresult 3" if STREAM.used else None


def install(arguments: Sequence[str]) -> None:
    """Emulate, in a process that has not begun.

    Arguments: `judge`, `worker` or `ahead`, a worker that makes its context now; bytes of the device's memory.
    """
    role, memory_bytes = arguments
    os.environ["KR_EMULATE_CUDA"] = memory_bytes
    from tasks.harness.emulate import install_if_asked

    install_if_asked()
    from runner.extras.trainers.inside.judge import main as group_main
    from tasks.harness.judge import activity, device_calls, evaluation, worker_client
    from tasks.harness.shared import cuda_driver
    from tasks.harness.worker import device, stream_block

    cuda: Any = torch.cuda
    cuda.Event, cuda.synchronize = Event, lambda *_: STREAM.drain()
    cuda.init = make_context
    cuda._sleep = lambda cycles: STREAM.submit(lambda: STREAM.spend(cycles))
    version: Any = torch.version
    version.cuda = "13.0"
    require_device: Any = vars(group_main)["require_device"]

    def require_with_context(device: str) -> None:
        make_context()
        require_device(device)

    patches: Sequence[tuple[Any, Mapping[str, Any]]] = (
        (cuda_driver.Driver, {"open": staticmethod(Driver)}),
        (evaluation, {"asked": lambda: False}),
        (group_main, {"asked": lambda: False, "require_device": require_with_context}),
        # How long the host takes to see an idle device is its load's doing.
        (device, {"asked": lambda: False, "try_out": _try_out, "_IDLE_NS": 1e12}),
        (device.Device, {"flush_l2": lambda _: None}),
        (stream_block, {"device_bytes": _over}),
        (device_calls, {"device_bytes": _over, "_launch": _launch, "_flush": _flush, "_FREE_NS": 1e12}),
        (device_calls, {} if _COSTS else {"_WARM_UP_NS": 1e6}),
        # The host's load must not decide how a call is counted, but where it is the subject.
        (worker_client, {} if os.environ.get("EMULATED_GPU_IN_TIME") else {"ENQUEUE_NS": 60_000_000_000}),
    )
    for where, changes in patches:
        for name, value in changes.items():
            setattr(where, name, value)
    if _COSTS is not None and role == "judge":
        _spend_in_judge(_COSTS)
    enqueue = stream_block.StreamBlock.enqueue

    def enqueue_work(self: Any, order: Any, kernel: Any, *, adapt: Any) -> Any:  # noqa: ANN401 its own
        MEMORY.end_call()
        return enqueue(self, order, _enqueued(kernel), adapt=adapt)

    stream_block.StreamBlock.enqueue = enqueue_work  # type: ignore[method-assign]  # see above
    if not os.environ.get("EMULATED_GPU_BUSY"):
        # The thread that stands for the device is one of the worker's.
        setattr(activity.Activity, "look", lambda _, **__: activity.Look(ran_ns={}, asleep=True))  # noqa: B010 mypy refuses the other form
    for defence in filter(None, os.environ.get("EMULATED_GPU_WITHOUT", "").split(",")):
        _without(defence, "judge" if role == "judge" else "worker")
    if role == "ahead":
        from tests.support.local_modules import make_context as make_first

        make_first()


def _without(defence: str, role: str) -> None:
    """Take a defence away from a judge and a worker: they do what is simpler, and can be cheated."""
    from tasks.harness.judge import device_calls, hand_over, snapshots, worker_client
    from tasks.harness.shared import values

    calls: Any = device_calls.DeviceCalls
    if defence == "flush":
        # The worker empties the caches, between the release and its first event.
        setattr(device_calls, "_flush", lambda _: None)  # noqa: B010 mypy refuses the other form
        wait_for = Driver.wait_for

        def wait_and_flush(self: Driver, stream: int, pointer: int, value: int) -> None:
            wait_for(self, stream, pointer, value)
            # What stands in this module then: a submission may have put something else there.
            STREAM.submit(globals()["flush"])

        if role == "worker":
            setattr(Driver, "wait_for", wait_and_flush)  # noqa: B010 mypy refuses the other form
    elif defence == "copy":
        # The judge copies an output when the worker has said all, not behind the end number; what that takes is free.
        seen: list[Any] = []
        copy_output, take_copied = calls.copy_output, snapshots.take_copied
        calls.copy_output = lambda self, output: seen.append(lambda: copy_output(self, output))

        def copied_late(tree: object, copied: Sequence[torch.Tensor], **facts: int) -> Any:  # noqa: ANN401 its own
            while seen:
                seen.pop()()
            STREAM.drain()
            return take_copied(tree, copied, **facts)

        setattr(worker_client, "take_copied", copied_late)  # noqa: B010 mypy refuses the other form
    elif defence == "description":
        # The claim ends when the kernel has returned, whatever it has put off.
        setattr(values.Outgoing, "put_off", property(lambda _: False, lambda *_: None))  # noqa: B010 see above
    elif defence == "span":
        # Claims are believed.
        none = hand_over.Bound(kernel_ns=0, margin_ns=0, bound_ns=0)
        setattr(hand_over.DeviceCosts, "bound", lambda *_, **__: none)  # noqa: B010 mypy refuses the other form
    else:
        raise ValueError(f"there is no defence {defence!r}")


def start(
    role: str, *, cwd: Path, env: Mapping[str, str], stdin: int, stdout: int, stderr: int, keep: Sequence[int]
) -> Started:
    """Start a judge or a worker with this device (see `tasks.harness.local.Start`)."""
    return _started(role, role, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, keep=keep)


def start_ahead(role: str, *, env: Mapping[str, str], first: Any = None, **places: Any) -> Started:  # noqa: ANN401 as in `start`
    """Start a worker ahead (see `tests.support.local_modules`). `first`: what it runs in place of `install`."""
    return _started(role, "ahead", env=env, first=first, **places)


def _started(role: str, kind: str, *, env: Mapping[str, str], first: Any = None, **places: Any) -> Started:  # noqa: ANN401 as in `start`
    first = first or (f"{__name__}:install", (kind, str(512 << 20)))
    return _SERVERS.start(role, env={**env, "PYTHONPATH": str(_ROOT)}, first=first, **places)


#: They end with this process.
_SERVERS = ForkServers()
