# One look-up for both values of a byte, and one product with b1 and b2 below each other.
import functools

import torch
from task import input_t, output_t

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@functools.cache
def byte_table(device: torch.device) -> torch.Tensor:
    # Once for all calls: a copy of Python numbers to a device waits for all that it still has to do.
    values = torch.tensor(E2M1, device=device)
    return torch.stack((values.repeat(16), values.repeat_interleave(16)), dim=-1).view(torch.int64).flatten()


def dequantize(packed: torch.Tensor, scales: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    values = torch.index_select(table, 0, packed.reshape(-1).int()).view(torch.float32)
    blocks = values.view(*scales.shape, 16).mul_(scales.view(torch.float8_e4m3fn).float().unsqueeze(-1))
    return blocks.view(packed.shape[0], -1)


def custom_kernel(data: input_t) -> output_t:
    c = data[-1]
    a, b1, b2, sfa, sfb1, sfb2 = (tensor.view(torch.uint8) for tensor in data[:6])
    table = byte_table(c.device)
    for batch in range(c.shape[2]):
        left = dequantize(a[:, :, batch], sfa[:, :, batch], table)
        both = torch.cat((b1[:, :, batch], b2[:, :, batch])), torch.cat((sfb1[:, :, batch], sfb2[:, :, batch]))
        gate, up = (left @ dequantize(*both, table).T).chunk(2, dim=1)
        c[:, :, batch] = torch.nn.functional.silu(gate).mul_(up)
    return c
