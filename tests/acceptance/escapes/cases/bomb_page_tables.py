"""
why: Page tables of a sparse mapping are the kernel's memory and count against the limit.
verdict: memory_limit
gvisor: [time_limit, memory_limit]
gvisor_why: its page tables grow slowly, and what ends first depends on the machine
"""
import mmap


def custom_kernel(data):
    # A read of an untouched page takes one page table per 2 MiB and no memory of its own.
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    while True:
        size = 1 << 38
        start = libc.mmap(None, size, mmap.PROT_READ, 0x22 | 0x4000, -1, 0)
        libc.madvise(start, size, 15)
        for offset in range(0, size, 2 << 20):
            ctypes.c_byte.from_address(start + offset).value
