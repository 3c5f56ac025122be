# Returns the element of the buffer, as submissions to the public board do.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    output[0] = torch.dot(values, torch.ones_like(values))
    return output[0]
