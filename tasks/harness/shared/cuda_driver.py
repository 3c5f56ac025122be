"""The calls of the CUDA driver that torch does not offer: streams that wait for memory, shared memory, the cache.

Through ctypes, in the calling process's own context; judge and worker both use it. Constants and signatures: cuda.h of
CUDA 13 (driver API: stream memory operations, memory management, interprocess handles, cuCtxSetLimit,
cuCtxResetPersistingL2Cache). HIP has stream memory operations as well, but only on memory that it allocates itself,
which cannot be shared with a judge. So there is no driver for HIP here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_LIBRARY: Final = "libcuda.so.1"
_WAIT_GEQ: Final = 0x0
_WRITE_DEFAULT: Final = 0x0
#: CU_MEMHOSTREGISTER_PORTABLE and CU_MEMHOSTREGISTER_DEVICEMAP.
_REGISTER: Final = 0x01 | 0x02
_LIMIT_PERSISTING_L2: Final = 0x06
#: CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.
_LAZY_PEER_ACCESS: Final = 0x01
#: CU_IPC_HANDLE_SIZE.
HANDLE_BYTES: Final = 64
#: An exported allocation is shared whole. Smaller allocations lie in blocks of this size, together with others.
_BLOCK_BYTES: Final = 2 << 20
#: Seconds for a device to see a number in the host's memory, and for the whole trial.
_SEEN_S: Final = 2.0
_TRIED_S: Final = 20.0
#: How soon a stream that does not wait would have written its number.
_RUNS_ON_S: Final = 5e-3
#: Offsets of the number that a stream waits for, and of the one that it writes.
_WAITS_AT = 0
_WRITES_AT = 64


class DriverError(Exception):
    """A call of the driver failed, or there is no driver."""


class _Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("bytes", ctypes.c_ubyte * HANDLE_BYTES),)


class Driver:
    """The library, for the context that is current in the calling thread. Every method may raise DriverError."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @classmethod
    def open(cls) -> Driver:
        """Open the library."""
        try:
            return cls(ctypes.CDLL(_LIBRARY))
        except OSError as error:
            raise DriverError(f"there is no {_LIBRARY}: {error}") from error

    def register(self, address: int, nbytes: int) -> int:
        """Map host memory for the device; its address on the device."""
        self._do("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(nbytes), ctypes.c_uint(_REGISTER))
        there = ctypes.c_uint64()
        self._do("cuMemHostGetDevicePointer_v2", ctypes.byref(there), ctypes.c_void_p(address), ctypes.c_uint(0))
        return there.value

    def unregister(self, address: int) -> None:
        """Undo `register`. The device must not use the memory any more."""
        self._do("cuMemHostUnregister", ctypes.c_void_p(address))

    def wait_for(self, stream: int, pointer: int, value: int) -> None:
        """Block a stream until the number at a device address is at least this one."""
        self._do(
            "cuStreamWaitValue32_v2",
            *(ctypes.c_void_p(stream), ctypes.c_uint64(pointer), ctypes.c_uint32(value), ctypes.c_uint(_WAIT_GEQ)),
        )

    def write(self, stream: int, pointer: int, value: int) -> None:
        """Make a stream write a number to a device address after all earlier work."""
        self._do(
            "cuStreamWriteValue32_v2",
            *(ctypes.c_void_p(stream), ctypes.c_uint64(pointer), ctypes.c_uint32(value), ctypes.c_uint(_WRITE_DEFAULT)),
        )

    def allocate(self, nbytes: int) -> range:
        """Allocate device memory that shares no block with other memory; its addresses."""
        size = max(-(-nbytes // _BLOCK_BYTES), 1) * _BLOCK_BYTES
        address = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return range(address.value, address.value + size)

    def free(self, address: int) -> None:
        """Undo `allocate`."""
        self._do("cuMemFree_v2", ctypes.c_uint64(address))

    def export(self, address: int) -> tuple[bytes, int]:
        """A handle with which another process opens the allocation of an address, and the address's offset in it.

        Raises:
            DriverError: see the class; also for memory that cannot be exported: of a pool, managed, or opened itself.
        """
        base, _ = self._allocation(address)
        handle = _Handle()
        self._do("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
        return bytes(handle), address - base

    def open_handle(self, handle: bytes) -> range:
        """Map an allocation of another process; its addresses here.

        Raises:
            ValueError: the handle has a wrong size.
        """
        if len(handle) != HANDLE_BYTES:
            raise ValueError(f"a handle of {len(handle)} bytes, expected {HANDLE_BYTES}")
        address = ctypes.c_uint64()
        copy = _Handle.from_buffer_copy(handle)
        self._do("cuIpcOpenMemHandle_v2", ctypes.byref(address), copy, ctypes.c_uint(_LAZY_PEER_ACCESS))
        base, size = self._allocation(address.value)
        return range(address.value, base + size)

    def close_handle(self, address: int) -> None:
        """Undo `open_handle`."""
        self._do("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def _allocation(self, address: int) -> tuple[int, int]:
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._do("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        return base.value, size.value

    def reset_persisting_l2(self) -> None:
        """Set aside no part of the L2 cache, and drop what was kept there. Older devices lack the feature."""
        with suppress(DriverError):
            self._do("cuCtxSetLimit", ctypes.c_int(_LIMIT_PERSISTING_L2), ctypes.c_size_t(0))
        with suppress(DriverError):
            self._do("cuCtxResetPersistingL2Cache")

    def new_stream(self) -> int:
        """A stream in a new context on the first device, current in this thread; for a process without torch."""
        device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuInit", ctypes.c_uint(0))
        self._do("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxSetCurrent", context)
        self._do("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(0))
        return stream.value or 0

    def _do(self, function: str, *arguments: Any) -> None:
        call = getattr(self._library, function, None)
        if call is None:
            raise DriverError(f"the driver has no {function}; it is too old")
        code = call(*arguments)
        if code != 0:
            raise DriverError(f"{function} failed with CUresult {code}")


def try_out(opener: Callable[[], Driver] = Driver.open) -> str | None:
    """Try whether streams of this machine's device can wait for shared memory; None: they can, else the reason.

    Runs in a process of its own, before this one has a context. If the device never sees the number, the waiting stream
    can never be ended.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        message = "it broke"
        try:
            message = _try(opener()) or ""
        except BaseException as error:  # noqa: BLE001 a process of its own, which has nothing else to say
            message = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, message.encode()[:1000] + b"\n")
            os._exit(0)
    os.close(write)
    try:
        poll = select.poll()
        poll.register(read, select.POLLIN)
        heard = poll.poll(_TRIED_S * 1e3)
        answer = os.read(read, 2000) if heard else f"no answer in {_TRIED_S:g} s".encode()
    finally:
        os.close(read)
        # A process whose stream is blocked for ever would not end by itself.
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    # It ends without an answer if the driver ends it.
    return answer.decode(errors="replace").strip("\n") or None if answer else "the process that tried it was ended"


def _try(driver: Driver) -> str | None:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    words = memoryview(page).cast("I")
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    stream = driver.new_stream()
    pointer = driver.register(address, mmap.PAGESIZE)
    driver.wait_for(stream, pointer + _WAITS_AT, 1)
    driver.write(stream, pointer + _WRITES_AT, 1)
    if _written(words, within_s=_RUNS_ON_S):
        return "a stream does not wait"
    words[_WAITS_AT // 4] = 1
    if not _written(words, within_s=_SEEN_S):
        return f"the device did not see a number in the host's memory within {_SEEN_S:g} s"
    return None


def _written(words: memoryview, *, within_s: float) -> bool:
    """Whether the device has written its number, or does so in time."""
    until = time.monotonic() + within_s
    while words[_WRITES_AT // 4] != 1:
        if time.monotonic() > until:
            return False
    return True
