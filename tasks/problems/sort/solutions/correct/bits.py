# Sorts whole numbers that have the same order: those of negative numbers have all bits but the sign inverted.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    bits = values.view(torch.int32)
    ordered = (bits ^ (bits >> 31 & 0x7FFFFFFF)).sort().values
    return output.copy_((ordered ^ (ordered >> 31 & 0x7FFFFFFF)).view(torch.float32))
