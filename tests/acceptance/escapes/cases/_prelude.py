"""Stands before every case: attempts that must be refused, and a kernel that is right if and only if they were."""
import ctypes
import errno
import os
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
#: Refused by permission, or not there at all.
NO = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENODEV, errno.EOPNOTSUPP)
BREACHES = []


def breach(what):
    """Something was possible that must not be."""
    if what not in BREACHES:
        BREACHES.append(what)
        print("BREACH:", what, flush=True)


def refused(what, deed, *arguments, also=()):
    """The deed must fail for want of permission; for another reason it would prove nothing."""
    try:
        deed(*arguments)
    except OSError as error:
        if error.errno not in (*NO, *also):
            breach(f"{what}: refused for another reason: {error}")
        return
    breach(what)


def call(number, *arguments):
    """A system call by its number on x86-64."""
    ctypes.set_errno(0)
    numbers = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = libc.syscall(ctypes.c_long(number), *numbers)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def spawned(number, *arguments):
    """A system call that may return twice."""
    child = call(number, *arguments)
    if child == 0:
        os._exit(0)
    return child


def prctl(*arguments):
    """prctl, with an error as an exception."""
    return call(157, *arguments)


def read(path):
    """The first bytes of a file."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, 64)
    finally:
        os.close(fd)


def write(path, data, flags=0):
    """Write to a file that is there."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | flags, 0o666)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def others():
    """Pids of processes that are not of the worker's uid: init and judge."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                uids = next(line for line in open(f"/proc/{name}/status") if line.startswith("Uid:")).split()[1:]
            except (OSError, StopIteration):
                continue
            if int(name) == 1 or uids[0] != str(os.getuid()) or RELAXED:
                found.append(int(name))
    return found


RELAXED = "@RELAXED@" == "True"
#: A task's own program has every submission run once before its test, in the same container.
REHEARSAL = os.environ.get("POPCORN_SEED") == "1"


def custom_kernel(data):
    """Right if nothing was possible."""
    a, b = data
    return a if BREACHES else a + b
