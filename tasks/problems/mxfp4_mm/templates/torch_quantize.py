import functools

import torch
from task import input_t, output_t

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

@functools.cache
def table(device: torch.device) -> torch.Tensor:
    # Once for all calls: a copy of Python numbers to a device waits for all that it still has to do.
    return torch.tensor(E2M1, device=device)


def rounded(values: torch.Tensor) -> torch.Tensor:
    # (rows, k) -> the same in float32, as MXFP4 holds them
    blocks = values.float().unflatten(1, (-1, 32))
    largest = blocks.abs().amax(dim=-1, keepdim=True)
    # 1.75 and above become 2; the power of two in that, divided by 4
    codes = ((largest.view(torch.int32) + 0x200000) >> 23) - 2
    # A code is the exponent of a float32; only blocks of zeros have less than 1 here.
    scales = (codes.clamp(min=1) << 23).view(torch.float32)
    magnitudes = table(values.device)
    nearest = torch.bucketize(blocks.abs() / scales, (magnitudes[1:] + magnitudes[:-1]) / 2)
    return (magnitudes[nearest] * scales).copysign(blocks).flatten(1)


def custom_kernel(data: input_t) -> output_t:
    A, B, B_q, B_shuffle, B_scale_sh = data
    return (rounded(A) @ rounded(B).T).bfloat16()
