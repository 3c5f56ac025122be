import functools

import torch
from task import input_t, output_t

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)

@functools.cache
def table(device: torch.device) -> torch.Tensor:
    # Once for all calls: a copy of Python numbers to a device waits for all that it still has to do.
    return torch.tensor(E2M1, device=device)


def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    # (rows, k / 2) and (rows, k / 16) -> (rows, k) in float32
    raw = packed.view(torch.uint8)
    codes = torch.stack((raw & 0xF, raw >> 4), dim=-1).flatten(1).int()
    values = table(packed.device)[codes]
    return values * scales.float().repeat_interleave(16, dim=1)


def custom_kernel(data: input_t) -> output_t:
    abc_tensors, sfasfb_tensors, _, _ = data
    for (a, b, c), (sfa, sfb) in zip(abc_tensors, sfasfb_tensors):
        left = dequantize(a[:, :, 0], sfa[:, :, 0])
        right = dequantize(b[:, :, 0], sfb[:, :, 0])
        c[:, :, 0] = (left @ right.T).half()
    return [c for _, _, c in abc_tensors]
