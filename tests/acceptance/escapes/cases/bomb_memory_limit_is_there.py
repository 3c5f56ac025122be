"""
why: One and a half times the limit cannot be allocated and written.
verdict: memory_limit
relax: memory
relaxed: accepted
"""
def custom_kernel(data):
    hoard = [b"x" * (64 << 20) for _ in range(24)]
    return data[0] + data[1]
