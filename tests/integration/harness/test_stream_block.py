"""Calls by flags on a device: the order in which things are enqueued, and what the judge makes of streams that wait.

The device is emulated, so that everything is done when it is enqueued. A stream that stands still is then one whose
host stands still, as for a submission that synchronises; one that does not wait makes its call before there are inputs.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.harness.worker.cuda_driver import Driver, DriverError, try_out
from tasks.harness.worker.device import flush_size

_ROOT = Path(__file__).resolve().parents[3]
_MIB = 1 << 20

#: A worker whose driver is one of the host's: a number is waited for by whoever asks a stream to, or not at all.
WORKER = """
import ctypes, sys, torch
from tasks.harness.worker import device, main as worker

class Host:
    seen = []
    def register(self, address, nbytes):
        self.seen.append("register")
        return address
    def unregister(self, address):
        self.seen.append("unregister")
    def wait_for(self, stream, pointer, value):
        self.seen.append("wait")
        number = ctypes.c_uint32.from_address(pointer)
        while WAITS and number.value < value:
            pass
    def write(self, stream, pointer, value):
        self.seen.append("write")
        ctypes.c_uint32.from_address(pointer).value = value
    def reset_persisting_l2(self):
        self.seen.append("reset")

def kernel(data):
    Host.seen.append("kernel")
    if FAILS:
        raise ValueError("no kernel")
    if len(Host.seen) < 12:
        print(" ".join(Host.seen), file=sys.stderr, flush=True)
    return data[0] + data[1]

device.try_out = lambda: None
device.Driver = type("Opener", (), {"open": staticmethod(Host)})
device.asked = lambda: False
device.Device.flush_l2 = lambda self: Host.seen.append("flush")
worker.calibration_kernel = kernel
torch.version.cuda = "13.0"
worker.main()
"""

#: A judge that makes three calls of one shape and says what came of the last two.
JUDGE = """
import json, os, socket, sys, time
from tasks.harness.emulate import install_if_asked
install_if_asked()
import torch
from tasks.harness.judge import worker_client as module
from tasks.harness.judge.faults import Fault
from tasks.harness.judge.worker_output import Collector
from tasks.harness.shared.values import pack
module.judge_core, module.stay_on, module.ENQUEUE_NS = lambda: 0, lambda _: None, 2_000_000_000
line = socket.socket(fileno=int(sys.argv[1]))
pipes = [os.pipe() for _ in range(3)]
client = module.WorkerClient(line, Collector(stdout_fd=pipes[0][0], stderr_fd=pipes[1][0], init_fd=pipes[2][0]))
until = time.monotonic_ns() + 60_000_000_000
why_not = client.prepare_device(flush_bytes=None, deadline_ns=until)
found = []
for number in range(3):
    a, b = (torch.full((64,), float(number + each), device="cuda") for each in (1, 2))
    try:
        called = client.call(pack((a, b)), output_capacity=512 if number else None, deadline_ns=until)
    except Fault as fault:
        found.append({"fault": fault.verdict, "message": fault.message})
        continue
    right = torch.equal(called.output.value().cpu(), (a + b).cpu())
    found.append({"right": right, "by_flags": called.by_flags, "by_host": called.by_host, "output": called.output_bytes,
                  "outside_ns": called.outside_ns, "claim_ns": called.claim_ns})
    module.ENQUEUE_NS = 20_000_000 if WAITS else module.ENQUEUE_NS
print(json.dumps({"why_not": why_not, "calls": found}))
"""


def converse(*, waits: bool, fails: bool = False) -> tuple[dict[str, Any], str]:
    """What the judge found, and what the worker wrote to stderr."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    environment = {
        **os.environ,
        "KR_EMULATE_CUDA": str(64 * _MIB),
        "PYTHONPATH": str(_ROOT),
        "KR_JUDGE_FD": str(theirs.fileno()),
    }
    constants = f"WAITS, FAILS = {waits}, {fails}\n"
    worker = subprocess.Popen(
        [sys.executable, "-c", constants + WORKER],
        env=environment,
        cwd=_ROOT,
        pass_fds=(theirs.fileno(),),
        stderr=subprocess.PIPE,
        text=True,
    )
    theirs.close()
    judge = subprocess.run(
        [sys.executable, "-c", constants + JUDGE, str(ours.fileno())],
        env={key: value for key, value in environment.items() if key != "KR_JUDGE_FD"},
        cwd=_ROOT,
        pass_fds=(ours.fileno(),),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours.close()
    _, said = worker.communicate(timeout=60)
    assert judge.returncode == 0, judge.stderr + said
    found: dict[str, Any] = json.loads(judge.stdout)
    assert found["why_not"] is None
    return found, said


def test_a_stream_that_its_host_waits_for_is_let_in_and_bounded_by_the_host() -> None:
    """The output is right, frozen when the device said so; the span holds the claim, and says whose it is."""
    found, said = converse(waits=True)
    first, *by_flags = found["calls"]
    assert (first["right"], first["by_flags"]) == (True, False)
    for call in by_flags:
        assert (call["right"], call["by_flags"], call["by_host"]) == (True, True, True)
        assert call["output"] == 512
        assert call["outside_ns"] > call["claim_ns"] > 0
    # The page, then for each call: nothing is kept of the cache, both memories are known, and then in this order.
    assert "register reset kernel" in said or "register reset flush kernel" in said
    assert "reset register register wait flush kernel" in said


def test_a_stream_that_does_not_wait_has_no_inputs() -> None:
    """All was enqueued, and here done, before the judge let go: what came of it is wrong."""
    found, _ = converse(waits=False)
    for call in found["calls"][1:]:
        assert (call["right"], call["by_flags"], call["by_host"]) == (False, True, False)


def test_a_kernel_that_raises_behind_the_gate_is_a_runtime_error() -> None:
    """Nobody waits for a number that nobody will write."""
    found, _ = converse(waits=False, fails=True)
    assert {call["fault"] for call in found["calls"]} == {"runtime_error"}
    assert "no kernel" in found["calls"][-1]["message"]


class Library:
    """A driver that notes what it is asked, and answers with one code."""

    def __init__(self, code: int = 0) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._code = code

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:  # noqa: ANN401 - of any kind
            self.asked.append((name, *(getattr(argument, "value", "out") for argument in arguments)))
            return self._code

        return call


def test_the_driver_is_asked_by_its_manual() -> None:
    """Names, order and constants as in cuda.h."""
    library = Library()
    driver = Driver(library)
    driver.register(4096, 64)
    driver.wait_for(7, 4096, 3)
    driver.write(7, 4160, 3)
    driver.unregister(4096)
    driver.reset_persisting_l2()
    assert library.asked == [
        ("cuMemHostRegister_v2", 4096, 64, 3),
        ("cuMemHostGetDevicePointer_v2", "out", 4096, 0),
        ("cuStreamWaitValue32_v2", 7, 4096, 3, 0),
        ("cuStreamWriteValue32_v2", 7, 4160, 3, 0),
        ("cuMemHostUnregister", 4096),
        ("cuCtxSetLimit", 6, 0),
        ("cuCtxResetPersistingL2Cache",),
    ]


def test_what_a_driver_refuses_is_told() -> None:
    """By the function's name and the driver's code; devices without a persisting cache are no error."""
    driver = Driver(Library(code=801))
    with pytest.raises(DriverError, match="cuStreamWaitValue32_v2 failed with CUresult 801"):
        driver.wait_for(1, 2, 3)
    driver.reset_persisting_l2()
    with pytest.raises(DriverError, match="has no cuMemHostUnregister"):
        Driver(SimpleNamespace()).unregister(1)


class Faithful(Driver):
    """One that does what a device would, in the host's memory; `sees` False: it never sees the number."""

    def __init__(self, *, sees: bool) -> None:
        super().__init__(None)
        self._sees = sees

    def new_stream(self) -> int:
        """Nothing to make."""
        return 1

    def register(self, address: int, nbytes: int) -> int:
        """The same address."""
        del nbytes
        return address

    def wait_for(self, stream: int, pointer: int, value: int) -> None:
        """Remembers what for."""

    def write(self, stream: int, pointer: int, value: int) -> None:
        """Writes as soon as the number is there, from a thread, as a device beside the host would."""
        del stream

        def later() -> None:
            while ctypes.c_uint32.from_address(pointer - 64).value < value:
                pass
            ctypes.c_uint32.from_address(pointer).value = value

        if self._sees:
            threading.Thread(target=later, daemon=True).start()


def test_a_gate_is_tried_before_anything_relies_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: seen to open, seen not to, or no driver at all."""
    monkeypatch.setattr("tasks.harness.worker.cuda_driver._SEEN_S", 0.2)
    assert try_out(lambda: Faithful(sees=True)) is None
    assert "did not see a number" in (try_out(lambda: Faithful(sees=False)) or "")
    assert "there is no libcuda" in (try_out(_absent) or "")


def _absent() -> Driver:
    raise DriverError("there is no libcuda.so.1")


@pytest.mark.parametrize(
    ("stated", "l2", "total", "expected"),
    [
        (100 * _MIB, 50 * _MIB, 80_000 * _MIB, 100 * _MIB),
        (None, 50 * _MIB, 80_000 * _MIB, 256 * _MIB),
        (None, 200 * _MIB, 80_000 * _MIB, 400 * _MIB),
        (None, None, 80_000 * _MIB, 256 * _MIB),
        (520 * _MIB, None, 800 * _MIB, 100 * _MIB),
        (0, 50 * _MIB, 80_000 * _MIB, 0),
    ],
)
def test_the_flush_is_as_large_as_the_caches_need(
    stated: int | None, l2: int | None, total: int, expected: int
) -> None:
    """What the GPU type states, else what the driver says, and never much of the memory."""
    properties = SimpleNamespace(total_memory=total, **({} if l2 is None else {"L2_cache_size": l2}))
    assert flush_size(stated, properties) == expected
