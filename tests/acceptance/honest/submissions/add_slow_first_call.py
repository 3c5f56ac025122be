# task: add
# Builds a table in its first call of a size, and never again.
import functools
import time

import torch


@functools.lru_cache
def ones(size):
    time.sleep(0.2)
    return torch.ones(size)


def custom_kernel(data):
    a, b = data
    return torch.addcmul(a, b, ones(a.numel()))
