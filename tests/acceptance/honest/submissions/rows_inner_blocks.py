# task: rows
# Keeps workspaces by shape.
import torch

WORK = {}


def custom_kernel(data):
    work = WORK.get(data.shape)
    if work is None:
        work = WORK[data.shape] = torch.empty(data.shape)
    work.copy_(data)
    work -= work.amax(-1, keepdim=True)
    work.exp_()
    work /= work.sum(-1, keepdim=True)
    return work.half()
