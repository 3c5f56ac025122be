import torch
from task import input_t, output_t
from torch.nn.functional import conv1d, pad

# TF32 is too coarse.
torch.backends.cudnn.allow_tf32 = False


def custom_kernel(data: input_t) -> output_t:
    x, weight, bias = data
    return conv1d(pad(x, (weight.shape[1] - 1, 0)), weight[:, None], bias, groups=x.shape[1])
