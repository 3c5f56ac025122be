"""The judge's side of a conversation, held with a real worker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from tasks.harness.judge import snapshots
from tasks.harness.judge import worker_client as module
from tasks.harness.judge.activity import Activity
from tasks.harness.judge.faults import Fault
from tasks.harness.judge.snapshots import Copy, Filled, Readable, WorkerMemory
from tasks.harness.judge.worker_client import COPY_BYTES, Called, WorkerClient, profile_of
from tasks.harness.judge.worker_output import Collector, Watcher
from tasks.harness.local import Pair
from tasks.harness.shared.arenas import Arena
from tasks.harness.shared.call_flags import DRY_BYTES, FLAGS_BYTES
from tasks.harness.shared.values import pack
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.support.waiting import PATIENCE_S, wait_until

_PATIENCE_NS = int(PATIENCE_S * 1e9)


@pytest.fixture
def client(processes: ForkedJudges, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WorkerClient]:
    """A client with open flags, whose worker still has the calibration kernel; the test is pinned to no core."""
    monkeypatch.setattr(module, "judge_core", lambda: 0)
    monkeypatch.setattr(module, "stay_on", lambda _: None)
    # However slow the machine is.
    monkeypatch.setattr(module, "_SOON_NS", _PATIENCE_NS)
    monkeypatch.setattr(module, "_CROWDED_NS", _PATIENCE_NS)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pipes = [os.pipe() for _ in range(3)]
    process = processes.start(
        "worker",
        cwd=tmp_path,
        env=os.environ | {"KR_JUDGE_FD": str(theirs.fileno())},
        stdin=subprocess.DEVNULL,
        stdout=pipes[0][1],
        stderr=pipes[1][1],
        keep=(theirs.fileno(),),
    )
    theirs.close()
    collector = Collector(stdout_fd=pipes[0][0], stderr_fd=pipes[1][0], init_fd=pipes[2][0])
    made = WorkerClient(ours, collector)
    monkeypatch.setattr(made, "worker_pid", process.pid, raising=False)
    try:
        assert made.open_flags(deadline_ns=_late())
        yield made
    finally:
        made.close()
        collector.close()
        ours.close()
        process.wait(timeout=PATIENCE_S)
        for pipe in pipes:
            for end in pipe:
                os.close(end)


def test_what_a_worker_has_sent_unread_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors lie in the judge's socket, and memory behind them, when the worker is dead."""
    monkeypatch.setattr(module, "stay_on", lambda _: None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    read, write = os.pipe()
    os.set_blocking(read, False)
    socket.send_fds(theirs, [b"x"], [write])
    os.close(write)
    theirs.close()
    WorkerClient(ours, Watcher()).close(for_good=True)
    assert os.read(read, 1) == b""
    os.close(read)


def _late() -> int:
    """A deadline that nothing meets but what hangs."""
    return time.monotonic_ns() + _PATIENCE_NS


def _load(client: WorkerClient, source: str, name: str = "kernel.py") -> None:
    client.load({name: source}, name, deadline_ns=_late())


def _load_meddler(client: WorkerClient, source: str, returns: str = "data[1]") -> None:
    """Load a submission that changes the worker's own code, `module` and its class `worker`, by this source."""
    head = "import sys, time\nimport torch\nmodule = sys.modules['tasks.harness.worker.main']\nworker = module.Worker\n"
    _load(client, f"{head}{source}\ndef custom_kernel(data):\n    return {returns}\n")


def _call(client: WorkerClient, payload: torch.Tensor) -> Called:
    """One call that returns what it is given."""
    size = payload.numel()
    return client.call(pack((0, payload, size)), output_capacity=size, deadline_ns=_late())


def assert_equal(found: object, expected: object) -> None:
    """Structure and values are the same."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor)
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_equal(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        assert found == expected


def _watch_copies(monkeypatch: pytest.MonkeyPatch, look: Callable[[Copy], object]) -> None:
    """Look at each copy of an output before the judge makes it."""
    fill = Copy.fill

    def looked_at(self: Copy, places: Sequence[tuple[Readable, int]]) -> Filled:
        look(self)
        return fill(self, places)

    monkeypatch.setattr(Copy, "fill", looked_at)


def _returned(called: Called) -> bytes:
    return bytes(torch.as_tensor(called.output.value()).numpy())


# Inputs of 64 KiB are still copied: machine code would map them faster than the worker, and keep the time.
@pytest.mark.parametrize("size", [4096, 64 << 10])
def test_calls_that_follow_each_other_are_told_of_ahead(client: WorkerClient, size: int) -> None:
    """Each gets its own inputs and gives its own output, whatever the worker was told before it was there."""
    sent: list[object] = []
    for number in range(1, 6):
        called = _call(client, torch.full((size,), number, dtype=torch.uint8))
        sent.append((called.by_flags, _returned(called)))

    assert sent == [(number > 1, bytes([number]) * size) for number in range(1, 6)]
    assert client._armed is not None
    assert client._armed.arena is not None


def test_no_call_is_told_of_ahead_whose_inputs_go_as_a_descriptor(client: WorkerClient) -> None:
    """The worker would spin while these are moved to huge pages, and the kernel would wait for its core."""
    for number in range(1, 6):
        called = _call(client, torch.full((COPY_BYTES + 1,), number, dtype=torch.uint8))
        assert (called.by_flags, client._armed) == (number > 1, None)


def test_what_the_worker_was_told_of_is_taken_back(client: WorkerClient) -> None:
    """Another message in between, or inputs of another size, do not run the call that was announced."""
    for number in range(3):
        _call(client, torch.full((4096,), number, dtype=torch.uint8))
    announced = client._armed
    assert announced is not None

    client.flush(deadline_ns=_late())
    assert client._armed is None
    assert announced.arena is not None
    assert announced.arena.fd == -1

    assert _returned(_call(client, torch.full((512,), 7, dtype=torch.uint8))) == b"\x07" * 512
    for size in (512, 512, 4096, 4096, 512):
        called = _call(client, torch.full((size,), 9, dtype=torch.uint8))
        assert _returned(called) == b"\x09" * size


def test_an_output_of_another_layout_is_described_in_a_message(client: WorkerClient) -> None:
    """It ends its call, whether it needs a larger arena or not, and later calls with such inputs go by message.

    With other inputs, whose outputs have one layout, they go by flags again.
    """
    _load(client, "def custom_kernel(data):\n    return data.repeat(int(data[0])) + 1\n")
    for size in (512, 600):
        seen = []
        for times in (1, 1, 1, 40, 1, 1, 1, 40, 1):
            sent = torch.full((size,), times, dtype=torch.uint8)
            called = client.call(pack(sent), output_capacity=size, deadline_ns=_late())
            assert _returned(called) == bytes([times + 1]) * (size * times)
            seen.append(called.by_flags)
        assert seen == [False, True, True, *[False] * 6]
        assert client._armed is None


#: Outputs of a kernel that returned one plain tensor so far: each an expression of `x`, a float32 tensor.
OTHERS = {
    "fewer": "x[:5].clone()",
    "none": "x[:0].clone()",
    "another shape": "x.view(2, -1).clone()",
    "another dtype": "x.double()",
    "integers": "x.int()",
    "not contiguous": "torch.stack((x, x), 1)[:, 0]",
    "conjugate": "torch.complex(x, x).conj()",
    "negative": "torch.complex(x, x).conj().imag",
    "expanded": "x[:1].expand(len(x))",
    "an input": "x",
    "a parameter": "torch.nn.Parameter(x + 1)",
    "with a gradient": "(x + 1).requires_grad_()",
    "a tuple": "(x + 1,)",
    "a number": "float(x[0])",
    "nothing": "None",
}


@pytest.mark.parametrize("output", OTHERS.values(), ids=OTHERS)
def test_an_output_of_any_other_kind_arrives(client: WorkerClient, output: str) -> None:
    """Whatever a kernel returned before."""
    _load(client, f"import torch\ndef custom_kernel(x):\n    return {output} if x[0] == 7 else x + 1\n")
    for number in (1, 2, 7, 3):
        sent = torch.full((512,), float(number))
        called = client.call(pack(sent), output_capacity=2048, deadline_ns=_late())
        expected = eval(output, {"torch": torch, "x": sent}) if number == 7 else sent + 1  # noqa: S307 ours
        assert_equal(called.output.value(), expected)


@pytest.mark.parametrize("fits", [True, False])
def test_an_output_by_message_may_outgrow_its_room(client: WorkerClient, *, fits: bool) -> None:
    """It waits for a larger arena."""
    sent = torch.arange(200, dtype=torch.uint8).repeat(100)
    called = client.call(
        pack((0, sent, 20_000)), output_capacity=20_000 if fits else 0, deadline_ns=_late(), by_message=True
    )
    assert _returned(called) == bytes(sent.numpy())


def test_a_call_that_fails_ends_by_message(client: WorkerClient) -> None:
    """What the submission raised is reported, and the next call can be made."""
    _load(client, "def custom_kernel(data):\n    assert data[0] != 7, 'a seven'\n    return data + 1\n")
    for number in (1, 2, 7, 3, 4):
        packed = pack(torch.full((512,), number, dtype=torch.uint8))
        if number == 7:
            with pytest.raises(Fault, match="a seven") as caught:
                client.call(packed, output_capacity=512, deadline_ns=_late())
            assert caught.value.verdict == "runtime_error"
        else:
            assert _returned(client.call(packed, output_capacity=512, deadline_ns=_late())) == bytes([number + 1] * 512)


def test_inputs_of_every_size_arrive_and_outputs_are_read_where_they_lie(client: WorkerClient) -> None:
    """Copied or handed over as a descriptor, in huge pages or not: each call has its own bytes."""
    client.memory_bytes = 1 << 30
    _load(client, "def custom_kernel(data):\n    return data + 1, data[:7]\n")
    for size in (64, COPY_BYTES, COPY_BYTES + 1, 100_000, 300_000, 5 << 20):
        for number in range(4):
            sent = torch.full((size,), number, dtype=torch.uint8)
            called = client.call(pack(sent), output_capacity=size, deadline_ns=_late())
            assert called.by_flags == (number > 0)
            assert_equal(called.output.value(), (sent + 1, sent[:7]))


#: What a kernel returns, the same of the test's, and whether its calls but the first go by flags.
KINDS: dict[str, tuple[Callable[[torch.Tensor], object], bool]] = {
    "data.view(4, -1).t()": (lambda x: x.view(4, -1).t(), True),
    "data": (lambda x: x, True),
    "data.to(__import__('torch').complex64).conj()": (lambda x: x.to(torch.complex64).conj(), True),
    "data[:0]": (lambda x: x[:0], True),
    "{'a': data * 2, 'b': [data[::2], None]}": (lambda x: {"a": x * 2, "b": [x[::2], None]}, True),
    "[]": (lambda _: [], True),
    "(data, data, data[3:])": (lambda x: (x, x, x[3:]), True),
    "{'a': data * 2, 'n': 3}": (lambda x: {"a": x * 2, "n": 3}, False),
    "(data, float(data[1]))": (lambda x: (x, float(x[1])), False),
    "(data, 'text')": (lambda x: (x, "text"), False),
    "data if data[0] % 2 else (data, data[:3])": (lambda x: x if x[0] % 2 else (x, x[:3]), False),
    "data[:int(data[0]) + 1]": (lambda x: x[: int(x[0]) + 1], False),
    "data.to(getattr(__import__('torch'), ('int32', 'int64')[int(data[0]) % 2]))": (
        lambda x: x.to((torch.int32, torch.int64)[int(x[0]) % 2]),
        False,
    ),
}


def test_outputs_of_every_kind_are_what_the_kernel_returned(client: WorkerClient) -> None:
    """Views, inputs, containers, values that are put off; those with numbers or of changing layouts by message."""
    for number, (returned, (expected, by_flags)) in enumerate(KINDS.items()):
        source = f"def custom_kernel(data):\n    return {returned}\n"
        _load(client, source, f"kind{number}.py")
        seen = []
        for first in range(4):
            # Each kind has other inputs than the last one.
            sent = (torch.arange(64 + 4 * number) + first).to(torch.float32)
            called = client.call(pack(sent), output_capacity=None, deadline_ns=_late())
            assert_equal(called.output.value(), expected(sent))
            seen.append(called.by_flags)
        assert seen == [False, *[by_flags] * 3], returned


def test_inputs_are_nowhere_before_the_release(client: WorkerClient) -> None:
    """What a worker that waits for the start flag has of inputs to be mapped is zeros and no descriptor."""
    payload = torch.full((100_000,), 255, dtype=torch.uint8)
    for _ in range(3):
        _call(client, payload)

    client._arm((payload.numel(),), module._placed((payload.numel(),)), deadline_ns=_late())
    # By then it has closed the last ones; the memory of the flags stays.
    client._hear_armed(_late())
    open_files = Path(f"/proc/{client.worker_pid}/fd").iterdir()  # type: ignore[attr-defined]  # the fixture's
    assert [file.stat().st_size for file in open_files if "memfd:arena" in str(file.readlink())] == [FLAGS_BYTES]


@pytest.mark.parametrize("size", [COPY_BYTES, 4 << 20])
def test_a_dry_run_comes_before_every_call_and_gives_nothing_away(
    client: WorkerClient, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """At its end the worker has mapped zeros, and what will be the inputs are zeros, too."""
    # However long a busy machine keeps the worker from its part.
    monkeypatch.setattr(module, "ASK_SPIN_NS", _PATIENCE_NS)
    source = """
import gc
(mine,) = (each for each in gc.get_objects() if type(each) is worker)
ends, seen = module.CallFlags.end_dry_run, []
def end_dry_run(flags, call):
    arena, data = mine._dry_arena, mine._inputs.value[1]
    seen.append([len(seen), int(arena.bytes_at(0, arena.size).any()), int(data.any())])
    ends(flags, call)
module.CallFlags.end_dry_run = end_dry_run
"""
    _load_meddler(client, source, returns="torch.tensor(seen[-1] if seen else [9, 9, 9]), data[1].sum()")
    outputs = [_call(client, torch.ones(size, dtype=torch.uint8)).output.value() for _ in range(4)]
    for number, output in enumerate(outputs[1:]):
        assert_equal(output, (torch.tensor([number, 0, 0]), torch.tensor(size)))


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_dry_run_is_not_in_the_span(client: WorkerClient, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """However long it takes: the clock starts after it, if the worker takes part."""
    monkeypatch.setattr(module, "ASK_SPIN_NS", _PATIENCE_NS)
    source = "tries = worker._dry_run\nworker._dry_run = lambda *given: time.sleep(0.5) or tries(*given)"
    _load_meddler(client, source)
    called = [_call(client, torch.ones(size, dtype=torch.uint8)) for _ in range(4)]
    assert min(each.outside_ns for each in called if each.by_flags) < 500_000_000


def test_a_worker_that_is_late_for_its_dry_run_gets_its_inputs_all_the_same(
    client: WorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor of the dry run comes first, and the judge has not waited for the end of it."""
    monkeypatch.setattr(module, "ASK_SPIN_NS", 0)
    for number in range(4):
        called = _call(client, torch.full((100_000,), number, dtype=torch.uint8))
        assert _returned(called) == bytes([number]) * 100_000
    assert called.by_flags


def test_the_judge_looks_at_the_output_of_a_dry_run(client: WorkerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """And at no more than was agreed on, whatever the worker says."""
    monkeypatch.setattr(module, "ASK_SPIN_NS", _PATIENCE_NS)
    looked: list[Sequence[int]] = []
    payload = torch.ones(100_000, dtype=torch.uint8)
    _call(client, payload)
    _watch_copies(monkeypatch, lambda copy: looked.append(copy._sizes))
    _call(client, payload)
    assert [list(sizes) for sizes in looked] == [[DRY_BYTES], [100_000]]


@pytest.mark.parametrize("size", [100, 100_000])
@pytest.mark.parametrize(
    "instead",
    [
        "self._reserved and self._received()",
        "tries(self, flags, call) or flags.deliver([], claim_ns=0)",
        "self._reserved and self._received(), flags.deliver([8], claim_ns=0), flags.end_dry_run(call)",
        "self._reserved and self._received(), flags.deliver([8] * 4000, claim_ns=0), flags.end_dry_run(call)",
    ],
    ids=["no part", "no output", "wild address", "many addresses"],
)
def test_who_spoils_a_dry_run_is_called_all_the_same(client: WorkerClient, size: int, instead: str) -> None:
    """It is no part of the call: nothing that the worker says in it counts."""
    source = f"tries = worker._dry_run\nworker._dry_run = lambda self, flags, call: ({instead})"
    _load_meddler(client, source)
    for number in range(3):
        called = _call(client, torch.full((size,), number, dtype=torch.uint8))
        assert _returned(called) == bytes([number]) * size
    assert called.by_flags


@pytest.mark.parametrize("size", [64, 64 << 10])
def test_what_keeps_the_judge_from_reading_is_the_calls_time(
    client: WorkerClient, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Each block of a copy that takes long, in small outputs and in large ones; a later look is not in the span."""
    monkeypatch.setattr(module, "ASK_SPIN_NS", _PATIENCE_NS)
    _load(client, "def custom_kernel(data):\n    return data[1], data[1][:9]\n")
    wait_s = 0.02
    read_into = WorkerMemory.read_into
    blocks: list[int] = []

    def late(self: WorkerMemory, into: memoryview, offset: int) -> None:
        time.sleep(wait_s)
        read_into(self, into, offset)

    payload = torch.full((size,), 7, dtype=torch.uint8)
    _call(client, payload)
    monkeypatch.setattr(WorkerMemory, "read_into", late)
    _watch_copies(monkeypatch, lambda copy: blocks.append(len(copy._blocks)))
    called = _call(client, payload)
    assert called.by_flags
    assert called.outside_ns >= 0.9 * blocks[-1] * wait_s * 1e9
    assert blocks[-1] == 2 or blocks[-1] > 15


#: What a worker does while the judge copies its output, and whether it can be late in all of that.
_MEANWHILE = {
    "sleeps": ("", False),
    "spins in a thread": ("threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()", True),
    "wakes up in between": ("threading.Thread(target=lambda: [*map(time.sleep, [0.002] * 9999)]).start()", True),
    "has many threads": ("for _ in range(99):\n    threading.Thread(target=threading.Event().wait).start()", True),
    "has a child that spins": (
        "if os.fork() == 0:\n    while os.getppid() == me:\n        pass\n    os._exit(0)",
        True,
    ),
}


@pytest.mark.parametrize("what", _MEANWHILE)
def test_the_judge_sees_whether_a_worker_sleeps_while_its_output_is_copied(
    client: WorkerClient, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Every thread of each of its processes; then only a byte that was written before it slept can be late."""
    source, is_late = _MEANWHILE[what]
    read_into = WorkerMemory.read_into
    looks: list[bool] = []

    def slow(self: WorkerMemory, into: memoryview, offset: int) -> None:
        time.sleep(0.001)
        read_into(self, into, offset)

    monkeypatch.setattr(WorkerMemory, "read_into", slow)
    _watch_copies(monkeypatch, lambda copy: looks.append(copy.activity is not None) if copy.is_large else None)
    monkeypatch.setattr(module, "_LOOK_EVERY", 5)
    # As in a container, where the kernel tells that there are no new threads; however busy the host is.
    monkeypatch.setattr(Activity, "_newest", lambda _: 7)
    monkeypatch.setattr("tasks.harness.judge.activity._COMPARED_NS", 600e9)
    monkeypatch.setattr(snapshots, "_SLEEP_NS", 600e9)
    head = f"import os, threading, time\nme = os.getpid()\n{source}\n"
    _load(client, f"{head}def custom_kernel(data):\n    return data[1] * 2\n")
    payload = torch.ones(9 << 20, dtype=torch.uint8)
    client.memory_bytes = 1 << 30
    _call(client, payload)
    looks.clear()
    called = [_call(client, payload) for _ in range(6)]
    assert all(call.by_flags for call in called)
    if is_late:
        assert all(call.late_ns == call.copy_ns for call in called)
        # The judge looks at no worker with many threads, and seldom at one that stays awake.
        assert looks == ([False] * 6 if what == "has many threads" else [True, True, True, False, False, True])
    else:
        assert any(0 < call.late_ns < call.copy_ns and not call.stalled for call in called)


@pytest.mark.parametrize(
    ("addresses", "error"),
    [("[4096]", "not where"), ("[(1 << 64) - 8]", "not where"), ("[1 << 46]", "not where"), ("[64] * 9000", "at most")],
)
def test_a_worker_that_names_memory_it_has_not_is_rejected(client: WorkerClient, addresses: str, error: str) -> None:
    """An address of nothing, one whose end is none, and more tensors than there are numbers for."""
    _load_meddler(client, f"worker._addresses_like_last = lambda self, output: {addresses}")
    # The first one goes by message.
    _call(client, torch.ones(99, dtype=torch.uint8))
    with pytest.raises(Fault, match=error):
        _call(client, torch.ones(99, dtype=torch.uint8))


def _delivering(client: WorkerClient, afterwards: str) -> None:
    """Load a submission whose worker delivers two addresses for one tensor, and then does this."""
    source = f"""
calls = worker._call_by_flags
def call_at(self, flags, call):
    if type(self._inputs.value) is not tuple:
        return calls(self, flags, call)
    flags.deliver([id(self)] * 2, claim_ns=5)
    flags.finish(call)
    return {afterwards}
worker._call_by_flags = call_at
"""
    _load_meddler(client, source)


def test_a_worker_that_delivers_another_number_of_addresses_is_heard_by_message_alone(client: WorkerClient) -> None:
    """Nothing of what it has delivered is used: the call ends with its message, and so do later ones."""
    _delivering(client, "self._return_described(module.Outgoing.describe(custom_kernel(self._inputs.value), {}))")
    for number in range(4):
        called = _call(client, torch.full((99,), number, dtype=torch.uint8))
        assert _returned(called) == bytes([number]) * 99
        assert not called.by_flags


def test_a_worker_that_delivers_another_number_and_sends_nothing_is_too_late(client: WorkerClient) -> None:
    """Its call has not ended."""
    _delivering(client, "None")
    payload = torch.ones(99, dtype=torch.uint8)
    _call(client, payload)
    with pytest.raises(Fault) as caught:
        client.call(pack((0, payload, 99)), output_capacity=99, deadline_ns=time.monotonic_ns() + 1_000_000_000)
    assert caught.value.verdict == "time_limit"


@pytest.mark.parametrize("nbytes", [99, COPY_BYTES + 1])
@pytest.mark.parametrize("call", [1, 2])
def test_a_call_that_hangs_is_waited_for_until_the_time_limit(
    client: WorkerClient, tmp_path: Path, call: int, nbytes: int
) -> None:
    """By message, as the first one, and by flags, with inputs that are copied or go as a descriptor."""
    source = f"""
import pathlib, time
calls = []
def custom_kernel(data):
    calls.append(0)
    if len(calls) == {call}:
        pathlib.Path("began").write_text(str(time.monotonic_ns()))
        while not pathlib.Path("over").exists():
            time.sleep(0.01)
    return data[1]
"""
    _load(client, source)
    payload = torch.ones(nbytes, dtype=torch.uint8)
    for _ in range(call - 1):
        _call(client, payload)
    began, before_ns = tmp_path / "began", client.waited_ns
    deadline_ns = time.monotonic_ns() + 2_000_000_000
    try:
        with pytest.raises(Fault) as caught:
            client.call(pack((0, payload, nbytes)), output_capacity=nbytes, deadline_ns=deadline_ns)
        wait_until(began.exists, "the call has begun")
    finally:
        (tmp_path / "over").touch()
    assert caught.value.verdict == "time_limit"
    assert client.waited_ns - before_ns >= deadline_ns - int(began.read_text())


def test_a_worker_that_reads_nothing_is_waited_for(client: WorkerClient) -> None:
    """A message that does not fit into its socket waits, too."""
    os.kill(client.worker_pid, signal.SIGSTOP)  # type: ignore[attr-defined]  # the fixture's
    before_ns = client.waited_ns
    with pytest.raises(Fault) as caught:
        client.load({"a.txt": "x" * (16 << 20)}, "a.txt", deadline_ns=time.monotonic_ns() + 1_000_000_000)
    os.kill(client.worker_pid, signal.SIGCONT)  # type: ignore[attr-defined]  # the fixture's
    assert caught.value.verdict == "time_limit"
    assert client.waited_ns > before_ns


def test_a_message_before_the_end_is_rejected(client: WorkerClient) -> None:
    """A worker has nothing to say before the flag."""
    client._spin_ns = 0
    source = """
def call_at(self, flags, call):
    self._channel.send(module.encode({'op': 'armed'}))
    while True:
        time.sleep(1)
worker._call_by_flags = call_at
"""
    _load_meddler(client, source)
    payload = torch.ones(99, dtype=torch.uint8)
    _call(client, payload)
    with pytest.raises(Fault, match="nothing had asked for") as caught:
        _call(client, payload)
    assert caught.value.verdict == "rejected"
    os.kill(client.worker_pid, 9)  # type: ignore[attr-defined]  # the fixture's


def test_who_waits_for_long_does_not_spin(client: WorkerClient) -> None:
    """A worker that was told of a call which does not come leaves its core to others."""
    for number in range(3):
        _call(client, torch.full((4096,), number, dtype=torch.uint8))

    assert client._armed is not None
    _wait_until_idle(client.worker_pid)  # type: ignore[attr-defined]  # the fixture's


def test_a_waiting_pair_does_not_spin() -> None:
    """Judge and worker that are ready before there is a request wait for it asleep, and not spinning on the flags."""
    with Pair() as pair:
        worker = pair.workers[0].pid
        wait_until(lambda: "memfd:arena" in Path(f"/proc/{worker}/maps").read_text(encoding="utf-8"), "it has arenas")
        # Now they calibrate.
        _wait_until_idle(pair._judge.pid, share=0.005)
        _wait_until_idle(worker, share=0.005)


def _cpu_s(pid: int) -> float:
    """What a process has computed for so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait_until_idle(pid: int, *, share: float = 0.3) -> None:
    """Wait until a process computes for less than this share of some seconds."""

    def idle() -> bool:
        began_s, before_s = time.monotonic(), _cpu_s(pid)
        time.sleep(2)
        return _cpu_s(pid) - before_s <= share * (time.monotonic() - began_s)

    wait_until(idle, "it rests")


@pytest.mark.parametrize("name", ["files", "table", "profiler", "failure"])
@pytest.mark.parametrize("value", [[["x"]], {"x": 1}, -1, 1e300], ids=str)
def test_a_profile_that_no_worker_of_ours_sends_is_tampering(name: str, value: object) -> None:
    """Whatever stands in a field."""
    answer = {"files": [], "table": 0, "profiler": "torch", "failure": None, name: value}
    with pytest.raises(Fault, match="impossible"):
        profile_of(answer, Arena.create(1))
