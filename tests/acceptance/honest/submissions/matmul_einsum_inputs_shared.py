# task: matmul
# Stacks its inputs and returns a piece of the stack.
import torch


def custom_kernel(data):
    stacked = torch.stack([*data, torch.zeros_like(data[0])])
    stacked[2] = torch.einsum("ij,jk->ik", stacked[0], stacked[1])
    return stacked[2]
