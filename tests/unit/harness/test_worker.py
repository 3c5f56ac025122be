"""How the worker describes what a submission raised."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tasks.harness.emulate.device import Event
from tasks.harness.shared.arenas import PAGE_BYTES, Arena
from tasks.harness.shared.call_flags import CallFlags
from tasks.harness.shared.values import MAX_TEXT, Outgoing, check_tree
from tasks.harness.shared.wire import MAX_FROM_WORKER_BYTES, Channel, PeerClosed
from tasks.harness.worker import device
from tasks.harness.worker import main as worker
from tasks.harness.worker.failures import describe_failure
from tasks.harness.worker.inputs import Inputs
from tasks.harness.worker.main import Worker
from tasks.harness.worker.stalls import describe_place


class CompilationError(Exception):
    """Stands in for Triton's, which is told apart by its package and name."""


CompilationError.__module__ = "triton.compiler.errors"


def _ninja_failed() -> BaseException:
    try:
        try:
            subprocess.run(["false", "ninja"], check=True)
        except subprocess.CalledProcessError as error:
            raise RuntimeError("Error building extension") from error
    except RuntimeError as error:
        return error
    raise AssertionError("false has succeeded")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (SyntaxError("invalid syntax"), "compile_error", "SyntaxError: invalid syntax"),
        (_ninja_failed(), "compile_error", "Error building extension"),
        (CompilationError("at 3:4"), "compile_error", "at 3:4"),
        (RuntimeError("ninja: build stopped"), "runtime_error", "ninja: build stopped"),
        (ModuleNotFoundError("No module named 'triton'"), "runtime_error", "No module named"),
        (SystemExit(3), "runtime_error", "exit(3)"),
        (KeyboardInterrupt(), "runtime_error", "KeyboardInterrupt"),
        (ValueError("\udc80"), "runtime_error", "ValueError: ?"),
        (ValueError("x" * 10_000_000), "runtime_error", "ValueError: xxx"),
    ],
)
def test_kinds_of_failure(error: BaseException, kind: str, text: str) -> None:
    """Builds are told from runs by what was raised, never by its text, which fits the channel whatever its length."""
    described = describe_failure(error)

    assert (described["op"], described["kind"]) == ("failed", kind)
    assert text in described["text"]
    assert len(described["text"]) < 10_000


def _frame_of(source: str, path: Path, **names: object) -> FrameType:
    """Where a program with these names is when it calls `here`."""
    found: list[FrameType] = []
    code = compile(source, str(path), "exec")
    exec(code, {"here": lambda: found.append(sys._getframe(1)), **names})  # noqa: S102 the test's own program
    return found[0]


def test_a_place_is_the_submissions_innermost_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of libraries below it do not hide it; one of torch.distributed anywhere there waits for others."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "submission.py"
    described = describe_place(_frame_of("def custom_kernel(data):\n    here()\ncustom_kernel(None)\n", path))
    assert described == {"op": "stuck", "text": "was at submission.py:2, in custom_kernel", "waits": False}
    inner = Path(torch.__file__).parent / "distributed" / "made_up.py"
    code = compile("def all_reduce(here):\n    here()\n", str(inner), "exec")
    library: dict[str, object] = {}
    exec(code, library)  # noqa: S102 the test's own program
    source = "def custom_kernel(data):\n\n    all_reduce(here)\ncustom_kernel(None)\n"
    described = describe_place(_frame_of(source, path, all_reduce=library["all_reduce"]))
    text = "waited for the others at submission.py:3, in custom_kernel"
    assert described == {"op": "stuck", "text": text, "waits": True}


@pytest.mark.parametrize(("busy_ns", "counted"), [(5_000, False), (7_000_000, True)])
def test_what_other_streams_do_is_the_calls_time(
    monkeypatch: pytest.MonkeyPatch, busy_ns: int, *, counted: bool
) -> None:
    """A device that is busy after the last event adds to the claim; one that is idle does not."""
    now = [0]

    def synchronize() -> None:
        now[0] += busy_ns

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(device, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(Event, "elapsed_time", lambda *_: 0.002)
    monkeypatch.setattr(device.Device, "flush_l2", lambda _: None)
    assert device.Device().time_call(lambda value: value, 3) == (3, 2_000 + (busy_ns if counted else 0))


def test_a_call_by_message_is_enqueued_behind_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """So no launch is between the events. The host waits for earlier work before that, and for the call at its end."""
    order: list[str] = []

    def noting(what: str) -> Callable[..., None]:
        return lambda *_, **__: order.append(what)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", noting("synchronise"))
    monkeypatch.setattr(Event, "record", noting("event"))
    monkeypatch.setattr(Event, "synchronize", noting("wait"))
    monkeypatch.setattr(Event, "elapsed_time", lambda *_: 0.002)
    monkeypatch.setattr(device.Device, "reset_l2", noting("reset"))
    monkeypatch.setattr(device.Device, "flush_l2", noting("flush"))
    device.Device().time_call(noting("kernel"), None)
    assert order == ["reset", "synchronise", "flush", "event", "kernel", "event", "wait", "synchronise"]


class _Later(torch.Tensor):
    """Takes a millisecond of the test's clock for whatever is done with it."""

    now: ClassVar[list[int]] = [0]

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], _: object, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 torch's signature
        if "copy_" in getattr(func, "__name__", ""):
            cls.now[0] += 1_000_000
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@pytest.fixture
def answering() -> Iterator[Worker]:
    """A worker that gets no request."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Worker(Channel(ours, max_bytes=64, accept_descriptors=True, wake_fd=None), own_cores=False)


def test_what_is_put_off_is_claimed_by_message_too(answering: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that computes when it is read does so on the kernel's account, on a call by message as well."""
    monkeypatch.setattr(worker, "perf_counter_ns", lambda: _Later.now[0])
    inputs = Inputs(raw=None, value=None, addresses=range(0), storages={}, views=(), cuda=False)
    answer = answering._return_output(torch.zeros(4).as_subclass(_Later), inputs)
    assert answer["op"] == "need"
    assert answering._claim_ns == 1_000_000


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch lacks it
    """Counts what torch does: a clock that only work moves."""

    done = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 torch's signature
        self.done += 1
        return func(*args, **(kwargs or {}))


_WHOLE = torch.arange(12.0)
#: Tensors of an output, and whether their bytes are in no memory yet.
_TENSORS: dict[str, tuple[torch.Tensor, bool]] = {
    "whole": (_WHOLE, False),
    "of no dimension": (torch.tensor(2), False),
    "empty": (torch.empty(0), False),
    "parameter": (torch.nn.Parameter(_WHOLE), False),
    "transposed": (_WHOLE.view(3, 4).T, True),
    "every second": (_WHOLE[::2], True),
    "one, expanded": (_WHOLE[:1].expand(5), True),
    "negated": (torch._neg_view(_WHOLE), True),
    "conjugate": (torch.complex(_WHOLE, _WHOLE).conj(), True),
}
_CONTAINERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "alone": lambda item: item,
    "tuple": lambda item: (item, _WHOLE),
    "list": lambda item: [_WHOLE, item],
    "dict": lambda item: {"a": item, "b": _WHOLE},
    "with none": lambda item: (None, item),
    "nested": lambda item: ({"a": [item]}, (_WHOLE, [])),
}


@pytest.mark.parametrize("container", _CONTAINERS)
@pytest.mark.parametrize("kind", _TENSORS)
def test_an_output_of_a_known_layout_costs_addresses_and_copies_alone(
    answering: Worker, monkeypatch: pytest.MonkeyPatch, kind: str, container: str
) -> None:
    """It is not described again, which would be hand-over that control calls do not have. Copies are in the claim."""
    tensor, put_off = _TENSORS[kind]
    output = _CONTAINERS[container](tensor)
    operations = _Operations()  # type: ignore[no-untyped-call]  # torch lacks it
    flags = CallFlags.create()
    inputs = Inputs(raw=None, value=None, addresses=range(0), storages={}, views=(), cuda=False)
    monkeypatch.setattr(worker, "perf_counter_ns", lambda: operations.done)
    answering._kernel, answering._inputs, answering._claim_ns = lambda _: output, inputs, 0
    with flags._arena, operations:
        answering._return_output(output, inputs)
        assert bool(answering._claim_ns) is put_off

        described = Outgoing.describe(output, {})
        monkeypatch.setattr(Outgoing, "describe", None)
        assert answering._call_by_flags(flags, 1) is None
        delivered = flags.delivered(len(described.tensors))
    assert delivered is not None
    addresses, claim_ns = delivered
    assert bool(claim_ns) is put_off
    bytes_of = [item.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for item in described.tensors]
    assert [ctypes.string_at(at, len(data)) for at, data in zip(addresses, bytes_of, strict=True)] == bytes_of


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(2),
        (torch.ones(3),),
        {"b": torch.ones(3)},
        {"a": torch.ones(3), "b": torch.ones(3)},
        {"a": torch.ones(3, dtype=torch.int32)},
        {"a": torch.ones(4)},
        {"a": None},
        {"a": [torch.ones(3)]},
        {"a": torch.ones(3).as_subclass(_Later)},
        {"a": torch.ones(3).to_sparse()},
        {},
    ],
)
def test_an_output_of_another_layout_is_none_of_the_known_one(answering: Worker, other: object) -> None:
    """Then only a description says what it is."""
    answering._describe_output({"a": torch.ones(3)}, {})
    assert answering._addresses_like_last(other) is None


@pytest.mark.parametrize(
    ("value", "readable"),
    [
        ([torch.ones(1)] * 5_000, True),
        ([torch.ones(1)] * 15_000, False),
        ([1] * 15_000, True),
        ([1] * 20_000, False),
        ({str(number): None for number in range(20_000)}, False),
        ([[[0.5] * 100] * 100] * 3, False),
        ("x" * MAX_TEXT, True),
        (("x" * MAX_TEXT + "y", 1), False),
        (["x" * 60_000] * 20, False),
        ({"x" * (2 << 20): 1}, False),
    ],
)
def test_an_output_of_any_size_is_described(value: object, *, readable: bool) -> None:
    """The judge can read what a worker sends of it: no honest answer is taken for a forged one."""
    tree = Outgoing.describe(value, {}).tree
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=theirs.sendall, args=(worker.encoded({"op": "done", "tree": tree}),))
        sender.start()
        channel = Channel(ours, max_bytes=MAX_FROM_WORKER_BYTES, accept_descriptors=False, wake_fd=None)
        answer, _ = channel.receive()
        sender.join()
    check_tree(answer["tree"])
    assert (answer["tree"] == tree) is readable
    assert (answer["tree"]["t"] == "opaque") is not readable


class _Seen(TorchFunctionMode):
    """Fails at whatever of torch is called from Python while it is entered."""

    def __torch_function__(self, *_: Any) -> Any:  # noqa: ANN401 see torch
        raise AssertionError("the harness's own code is seen by the submission's mode")


def test_modes_that_a_submission_enters_do_not_slow_the_hand_over(answering: Worker) -> None:
    """What comes after the claim is not the kernel's, and counts as such: `with torch.device` would make it slow."""
    output = torch.ones(3)
    answering._describe_output(output, {})
    address = output.data_ptr()
    with _Seen():
        assert answering._addresses_like_last(output) == [address]


class _Scripted:
    """A channel on which arrive calls by flags with these descriptors, and nothing after them."""

    def __init__(self, descriptors: Iterable[Sequence[int]]) -> None:
        self._descriptors = enumerate(descriptors)
        #: How long the worker was ready to spin for each message.
        self.spins_ns: list[int] = []

    def receive(self, *, spin_ns: int) -> tuple[dict[str, Any], Sequence[int]]:
        """The next one."""
        self.spins_ns.append(spin_ns)
        for call, descriptors in self._descriptors:
            return {"op": "arm", "size": PAGE_BYTES, "call": call, "storages": []}, descriptors
        raise PeerClosed("the script is over")

    def send(self, message: bytes) -> None:
        """Nobody listens."""


def test_the_worker_sleeps_after_a_call_whose_inputs_came_as_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel needs its core for a moment while the judge makes the next ones; small inputs come sooner."""
    monkeypatch.setattr(Worker, "_wait_for_release", lambda *_: True)
    monkeypatch.setattr(Worker, "_call_by_flags", lambda *_: None)
    with Arena.create(PAGE_BYTES) as arena:
        channel: Any = _Scripted([[os.dup(arena.fd)], [], [os.dup(arena.fd)]])
        answering = Worker(channel, own_cores=True)
        answering._flags, answering._tree = CallFlags.create(), {"t": "none"}
        with pytest.raises(PeerClosed):
            answering.serve()
    assert channel.spins_ns == [0, worker.SPIN_NS, 0, worker.SPIN_NS]
