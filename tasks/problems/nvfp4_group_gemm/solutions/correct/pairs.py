# Decodes all problems at once, with one look-up for both values of a byte.
import functools

import torch
from task import input_t, output_t

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@functools.cache
def byte_table(device: torch.device) -> torch.Tensor:
    # Once for all calls: a copy of Python numbers to a device waits for all that it still has to do.
    values = torch.tensor(E2M1, device=device)
    return torch.stack((values.repeat(16), values.repeat_interleave(16)), dim=-1).view(torch.int64).flatten()


def custom_kernel(data: input_t) -> output_t:
    abc_tensors, sfasfb_tensors, _, sizes = data
    table = byte_table(abc_tensors[0][2].device)
    packed = [each.view(torch.uint8)[:, :, 0].flatten() for a, b, _ in abc_tensors for each in (a, b)]
    scales = [each.view(torch.uint8)[:, :, 0].flatten() for pair in sfasfb_tensors for each in pair]
    decoded = torch.index_select(table, 0, torch.cat(packed).int()).view(torch.float32).view(-1, 16)
    decoded *= torch.cat(scales).view(torch.float8_e4m3fn).float().unsqueeze(-1)
    factors = iter(decoded.flatten().split([2 * each.numel() for each in packed]))
    for (_, _, c), (m, n, k, _) in zip(abc_tensors, sizes):
        left, right = next(factors).view(m, k), next(factors).view(n, k)
        c[:, :, 0] = left @ right.T
    return [c for _, _, c in abc_tensors]
