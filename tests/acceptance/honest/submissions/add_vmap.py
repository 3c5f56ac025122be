# task: add
# torch.func.
import torch

ADD = torch.func.vmap(lambda a, b: a + b)


def custom_kernel(data):
    return ADD(*data)
