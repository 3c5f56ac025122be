import torch
from task import input_t, output_t

# TF32 is too coarse.
torch.backends.cudnn.allow_tf32 = False


def custom_kernel(data: input_t) -> output_t:
    image, weights, output = data
    return output.copy_(torch.nn.functional.conv2d(image, weights))
