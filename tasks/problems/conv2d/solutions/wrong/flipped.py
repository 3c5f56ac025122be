# Turns the kernels by 180 degrees, as a convolution in mathematics does.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    image, weights, output = data
    return output.copy_(torch.nn.functional.conv2d(image, weights.flip(2, 3)))
