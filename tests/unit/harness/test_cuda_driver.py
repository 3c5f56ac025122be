"""The CUDA driver: what it is asked, what its answers become, and whether its streams can wait for shared memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.harness.shared.cuda_driver import Driver, DriverError, try_out
from tasks.harness.shared.device_memory import flush_size
from tests.support.many_files import many_files
from tests.support.waiting import PATIENCE_S

_MIB = 1 << 20


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
    """Names, order and constants as in cuda.h.

    What it refuses is told by the function's name and the driver's code; no persisting cache is no error.
    """
    library = Library()
    driver = Driver(library)
    driver.register(4096, 64)
    driver.wait_for(7, 4096, 3)
    driver.write(7, 4160, 3)
    driver.unregister(4096)
    driver.reset_persisting_l2()
    assert driver.allocate((2 << 20) + 1) == range(4 << 20)
    driver.free(8192)
    assert driver.export(8192) == (bytes(64), 8192)
    assert driver.open_handle(bytes(64)) == range(0)
    driver.close_handle(12288)
    assert library.asked == [
        ("cuMemHostRegister_v2", 4096, 64, 3),
        ("cuMemHostGetDevicePointer_v2", "out", 4096, 0),
        ("cuStreamWaitValue32_v2", 7, 4096, 3, 0),
        ("cuStreamWriteValue32_v2", 7, 4160, 3, 0),
        ("cuMemHostUnregister", 4096),
        ("cuCtxSetLimit", 6, 0),
        ("cuCtxResetPersistingL2Cache",),
        ("cuMemAlloc_v2", "out", 4 << 20),
        ("cuMemFree_v2", 8192),
        ("cuMemGetAddressRange_v2", "out", "out", 8192),
        ("cuIpcGetMemHandle", "out", 0),
        ("cuIpcOpenMemHandle_v2", "out", "out", 1),
        ("cuMemGetAddressRange_v2", "out", "out", 0),
        ("cuIpcCloseMemHandle", 12288),
    ]
    with pytest.raises(ValueError, match="a handle of 3 bytes, expected 64"):
        driver.open_handle(b"abc")
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
    for name in ("_SEEN_S", "_TRIED_S"):
        monkeypatch.setattr(f"tasks.harness.shared.cuda_driver.{name}", PATIENCE_S)
    assert try_out(lambda: Faithful(sees=True)) is None
    monkeypatch.setattr("tasks.harness.shared.cuda_driver._SEEN_S", 0.2)
    assert "did not see a number" in (try_out(lambda: Faithful(sees=False)) or "")
    assert "there is no libcuda" in (try_out(_absent) or "")


class RunsOn(Faithful):
    """One whose streams do not wait, and are a little late."""

    def __init__(self) -> None:
        super().__init__(sees=True)

    def write(self, stream: int, pointer: int, value: int) -> None:
        """Writes from a thread that has yet to start."""
        del stream

        def later() -> None:
            time.sleep(1e-3)
            ctypes.c_uint32.from_address(pointer).value = value

        threading.Thread(target=later, daemon=True).start()


def test_a_stream_that_does_not_wait_is_found_although_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device takes some microseconds to run on. One look at once would see nothing."""
    monkeypatch.setattr("tasks.harness.shared.cuda_driver._RUNS_ON_S", PATIENCE_S)
    monkeypatch.setattr("tasks.harness.shared.cuda_driver._TRIED_S", 2 * PATIENCE_S)
    assert try_out(RunsOn) == "a stream does not wait"


def test_a_driver_that_ends_the_process_that_tries_it_has_not_passed() -> None:
    """Nothing was seen, so nothing is known of its streams; however many files the judge holds."""
    for holds in (contextlib.nullcontext, many_files):
        with holds():
            said = try_out(lambda: os.kill(os.getpid(), signal.SIGKILL))  # type: ignore[arg-type,return-value]  # it never returns
        assert said == "the process that tried it was ended"


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
