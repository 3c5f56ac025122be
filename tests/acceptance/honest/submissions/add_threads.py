# task: add
# Threads that are joined before it returns.
from concurrent.futures import ThreadPoolExecutor

import torch

POOL = ThreadPoolExecutor(2)


def custom_kernel(data):
    a, b = data
    out = torch.empty_like(a)
    half = a.numel() // 2
    parts = [slice(0, half), slice(half, None)]
    list(POOL.map(lambda part: torch.add(a[part], b[part], out=out[part]), parts))
    return out
