# One look-up for both values of a byte, and scales applied to blocks in place: decoding takes a fraction of the time.
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
    raw = packed.view(torch.uint8)
    values = torch.index_select(table, 0, raw.reshape(-1).int()).view(torch.float32)
    blocks = values.view(*scales.shape, 16).mul_(scales.float().unsqueeze(-1))
    return blocks.view(raw.shape[0], -1)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    table = byte_table(c.device)
    for batch in range(c.shape[2]):
        left = dequantize(a[:, :, batch], sfa[:, :, batch], table)
        right = dequantize(b[:, :, batch], sfb[:, :, batch], table)
        c[:, :, batch] = left @ right.T
    return c
