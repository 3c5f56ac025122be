"""
why: Each close of a file walks its locks. Killed processes with many files and locks would not end for minutes.
boards: [judge]
relax: seccomp
gvisor: wrong_answer
gvisor_why: it has locks of its own, of its own kernel's processes
"""
import fcntl

#: Of one byte; F_WRLCK.
LOCK = struct.pack("hhqqi", 1, 0, 0, 1, 0)
fd, other = (os.open("/dev/shm/locked", os.O_RDWR | os.O_CREAT) for _ in range(2))
# Said to be taken.
fcntl.fcntl(fd, fcntl.F_SETLK, LOCK)
child = os.fork()
if child == 0:
    os._exit(struct.unpack_from("h", fcntl.fcntl(fd, fcntl.F_GETLK, LOCK))[0])
if os.waitpid(child, 0)[1] != fcntl.F_UNLCK << 8:
    breach("a lock of a range")
fcntl.flock(fd, fcntl.LOCK_SH)
try:
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    breach("a shared lock")
fcntl.flock(other, fcntl.LOCK_UN)
refused("a lock of an open file", fcntl.fcntl, fd, fcntl.F_OFD_SETLK, LOCK)
refused("a lease", fcntl.fcntl, os.open("/dev/shm/leased", os.O_RDWR | os.O_CREAT), fcntl.F_SETLEASE, fcntl.F_WRLCK)

# Who is told that a lock is taken goes on.
import sqlite3

import torch

sqlite3.connect("/dev/shm/base").execute("CREATE TABLE numbers (number)")
store = torch.distributed.FileStore("/dev/shm/store", 1)
store.set("word", "read")
if store.get("word") != b"read":
    breach("a store")
