"""
why: Memory files belong to nobody's mapping and count all the same.
verdict: memory_limit
"""
def custom_kernel(data):
    block = bytes(16 << 20)
    while True:
        fd = os.memfd_create("bomb")
        for _ in range(8):
            os.write(fd, block)
