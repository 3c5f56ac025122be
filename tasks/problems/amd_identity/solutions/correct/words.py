# Copies four bytes at a time, as a kernel with wider loads does, and an odd element by itself.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    source, output = data
    even = source.numel() // 2 * 2
    output[:even].view(torch.int32).copy_(source[:even].view(torch.int32))
    output[even:] = source[even:]
    return output
