"""Memory of a device in two processes, the second under another uid: legacy handles beside exported descriptors.

    python -m tests.gpu.handles exported|legacy [UID]

Prints `read`, or why it could not be. A program of its own, since processes that fork must have no context yet. The
driver is called through ctypes; structures and constants are cuda.h's (virtual memory management, interprocess
handles).
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

SIZE = 2 << 20
PATTERN = b"kernel-runner" * 8


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Flags(ctypes.Structure):
    """CUmemAllocationProp.allocFlags."""

    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", Flags),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


def driver() -> Callable[..., None]:
    """Calls of the driver, in a context of this process's own."""
    library = ctypes.CDLL("libcuda.so.1")

    def do(name: str, *arguments: Any) -> None:  # noqa: ANN401 - whatever ctypes takes
        code = getattr(library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: CUresult {code}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    do("cuInit", 0)
    do("cuDeviceGet", ctypes.byref(device), 0)
    do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    do("cuCtxSetCurrent", context)
    return do


def mapped(do: Callable[..., None], handle: ctypes.c_uint64) -> ctypes.c_uint64:
    """An address at which an allocation can be read and written."""
    address = ctypes.c_uint64()
    do("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(SIZE), ctypes.c_size_t(0), ctypes.c_uint64(0),
       ctypes.c_ulonglong(0))  # fmt: skip
    do("cuMemMap", address, ctypes.c_size_t(SIZE), ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
    access = Access(location=Location(type=1, id=0), flags=3)
    do("cuMemSetAccess", address, ctypes.c_size_t(SIZE), ctypes.byref(access), ctypes.c_size_t(1))
    return address


def read(do: Callable[..., None], address: ctypes.c_uint64) -> bytes:
    """What stands there."""
    found = ctypes.create_string_buffer(len(PATTERN))
    do("cuMemcpyDtoH_v2", found, address, ctypes.c_size_t(len(PATTERN)))
    return found.raw


def exported(line: socket.socket) -> None:
    """Make an allocation, fill it, and send its descriptor."""
    do = driver()
    handle, descriptor = ctypes.c_uint64(), ctypes.c_int(-1)
    properties = Properties(type=1, handles=1, location=Location(type=1, id=0))
    do("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(SIZE), ctypes.byref(properties), ctypes.c_ulonglong(0))
    address = mapped(do, handle)
    do("cuMemcpyHtoD_v2", address, PATTERN, ctypes.c_size_t(len(PATTERN)))
    do("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, ctypes.c_int(1), ctypes.c_ulonglong(0))
    socket.send_fds(line, [b"f"], [descriptor.value])
    line.recv(1)


def imported(line: socket.socket) -> bytes:
    """Receive a descriptor and read the allocation behind it."""
    do = driver()
    _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
    handle = ctypes.c_uint64()
    do("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptors[0]), ctypes.c_int(1))
    return read(do, mapped(do, handle))


def legacy_sent(line: socket.socket) -> None:
    """Make an allocation of the old kind, fill it, and send its handle."""
    do = driver()
    address, handle = ctypes.c_uint64(), Handle()
    do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(SIZE))
    do("cuMemcpyHtoD_v2", address, PATTERN, ctypes.c_size_t(len(PATTERN)))
    do("cuIpcGetMemHandle", ctypes.byref(handle), address)
    line.sendall(bytes(handle))
    line.recv(1)


def legacy_opened(line: socket.socket) -> bytes:
    """Receive a handle and read the allocation behind it."""
    do = driver()
    address = ctypes.c_uint64()
    handle = Handle.from_buffer_copy(line.recv(64))
    do("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, ctypes.c_uint(1))
    return read(do, address)


def child(work: Callable[[], None], uid: int | None) -> int:
    """A process that does something, under another uid if one is given."""
    pid = os.fork()
    if pid == 0:
        try:
            if uid is not None:
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            work()
        finally:
            os._exit(0)
    return pid


def crossing(send: Callable[[socket.socket], None], take: Callable[[socket.socket], bytes], uid: int | None) -> str:
    """What the second process says: `read`, or why not. Neither process is this one, which may have a context."""
    ours, theirs = socket.socketpair()
    said, heard = os.pipe()

    def receive() -> None:
        try:
            word = "read" if take(theirs) == PATTERN else "read something else"
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
            word = f"{type(error).__name__}: {error}"
        os.write(heard, word.encode())
        theirs.send(b"x")

    began = time.monotonic()

    def give() -> None:
        # The other process must see the end of the line if this one fails.
        theirs.close()
        send(ours)

    def receive_alone() -> None:
        ours.close()
        theirs.settimeout(30)
        receive()

    pids = [child(give, None), child(receive_alone, uid)]
    ours.close()
    theirs.close()
    os.close(heard)
    answer = os.read(said, 1000).decode() or "nothing"
    os.close(said)
    for pid in pids:
        os.waitpid(pid, 0)
    return f"{answer} ({time.monotonic() - began:.2f} s)"


def main() -> int:
    """Entry point."""
    send, take = {"exported": (exported, imported), "legacy": (legacy_sent, legacy_opened)}[sys.argv[1]]
    sys.stdout.write(crossing(send, take, int(sys.argv[2]) if len(sys.argv) > 2 else None) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
