# task: add
# Has a child compute, and waits for it.
import os

import torch


def custom_kernel(data):
    a, b = data
    shared = torch.empty_like(a).share_memory_()
    pid = os.fork()
    if pid == 0:
        for index in range(0, a.numel(), 4096):
            shared[index : index + 4096] = a[index : index + 4096] + b[index : index + 4096]
        os._exit(0)
    os.waitpid(pid, 0)
    return shared
