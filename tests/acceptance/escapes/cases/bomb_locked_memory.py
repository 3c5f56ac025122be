"""
why: Locked pages cannot be swapped and are not spared when the limit is reached.
verdict: memory_limit
"""
def custom_kernel(data):
    libc.mlockall(7)
    hoard = []
    while True:
        hoard.append(bytearray(b"x" * (32 << 20)))
