"""
why: Memory files outlive their writer; a container brought down with them is a memory limit, not a fault of ours.
boards: [judge, program]
verdict: memory_limit
"""
def custom_kernel(data):
    hoard = []
    for place in ("/work", "/tmp", "/dev/shm"):
        with open(f"{place}/full", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                pass
    while True:
        hoard.append(b"x" * (16 << 20))
