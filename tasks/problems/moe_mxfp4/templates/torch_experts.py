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
    scales = (codes.clamp(min=1) << 23).view(torch.float32)
    magnitudes = table(values.device)
    nearest = torch.bucketize(blocks.abs() / scales, (magnitudes[1:] + magnitudes[:-1]) / 2)
    return (magnitudes[nearest] * scales).copysign(blocks).flatten(1)


def decoded(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    # (rows, k / 2), (rows, k / 32) -> (rows, k) in float32
    raw = packed.view(torch.uint8)
    codes = torch.stack((raw & 15, raw >> 4), dim=-1).flatten(-2).int()
    values = torch.where(codes < 8, 1.0, -1.0) * table(packed.device)[codes & 7]
    return (values.unflatten(1, (-1, 32)) * scales.float().unsqueeze(-1)).flatten(1)


def custom_kernel(data: input_t) -> output_t:
    hidden_states, gate_up, down, gate_up_scale, down_scale, *_, factors, chosen, config = data
    x = rounded(hidden_states)
    total = torch.zeros_like(x)
    for index in chosen.unique().tolist():
        rows, slots = torch.nonzero(chosen == index, as_tuple=True)
        gate, up = (x[rows] @ decoded(gate_up[index], gate_up_scale[index]).T).chunk(2, dim=1)
        hidden = rounded((torch.nn.functional.silu(gate) * up).bfloat16())
        total[rows] += factors[rows, slots, None] * (hidden @ decoded(down[index], down_scale[index]).T)
    return total.bfloat16()
