# task: matmul
# Blocks into one buffer, on several threads of torch's.
import torch


def custom_kernel(data):
    a, b = data
    out = torch.zeros(a.shape[0], b.shape[1])
    step = max(1, a.shape[1] // 4)
    for start in range(0, a.shape[1], step):
        out += a[:, start : start + step] @ b[start : start + step]
    return out
