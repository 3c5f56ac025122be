# A product of matrices for each place of the kernel, added up in float64.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    image, weights, output = data
    rows, columns = output.shape[2:]
    total = torch.zeros_like(output, dtype=torch.float64)
    for v in range(weights.shape[2]):
        for u in range(weights.shape[3]):
            part = image[:, :, v : v + rows, u : u + columns]
            total += torch.einsum("oi,biyx->boyx", weights[:, :, v, u], part)
    return output.copy_(total)
