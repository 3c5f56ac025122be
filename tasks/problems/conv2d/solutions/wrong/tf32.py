# Low precision: factors have the ten bits of TF32.
import torch
from task import input_t, output_t


def tf32(values: torch.Tensor) -> torch.Tensor:
    return ((values.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def custom_kernel(data: input_t) -> output_t:
    image, weights, output = data
    return output.copy_(torch.nn.functional.conv2d(tf32(image), tf32(weights)))
