"""
why: Huge pages of the host's pool are not counted as the container's memory.
relax: seccomp
gvisor: wrong_answer
gvisor_why: gVisor takes the flags and gives ordinary memory, which is counted
"""
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def mapped(flags):
    ctypes.set_errno(0)
    if libc.mmap(None, 2 << 20, 3, flags, -1, 0) == 2**64 - 1:
        raise OSError(ctypes.get_errno(), "mmap")


mapped(0x22)
refused("a mapping of huge pages", mapped, 0x22 | 0x40000)
refused("a memory file of huge pages", call, 319, b"huge", 4)
refused("shared memory of huge pages", call, 29, 0, 2 << 20, 0o1600 | 0o4000)
