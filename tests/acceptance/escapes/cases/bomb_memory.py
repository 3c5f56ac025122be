"""
why: Anonymous memory ends at the cgroup's limit; the kernel kills the worker, not the judge.
boards: [judge, program]
verdict: memory_limit
error: memory limit
"""
def custom_kernel(data):
    hoard = []
    while True:
        hoard.append(b"x" * (32 << 20))
