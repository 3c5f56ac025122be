# task: rows
# In float32, row by row, into half precision.
import torch


def custom_kernel(data):
    out = torch.empty_like(data)
    for index, row in enumerate(data):
        shifted = (row.float() - row.float().max()).exp_()
        out[index] = shifted / shifted.sum()
    return out
