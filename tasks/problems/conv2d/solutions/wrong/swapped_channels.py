# Takes input channels for output channels.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    image, weights, output = data
    return output.copy_(torch.nn.functional.conv2d(image, weights.transpose(0, 1)))
