# Jacobi's rotations, of disjoint pairs at a time, until all is diagonal.
import functools
import torch
from task import input_t, output_t

SWEEPS = 8


@functools.cache
def tournament(n, device):
    # In each round everyone meets another; of an odd number one rests.
    ring, rounds = list(range(n + n % 2)), []
    for _ in ring[1:]:
        half = len(ring) // 2
        pairs = [sorted(pair) for pair in zip(ring[:half], reversed(ring[half:])) if max(pair) < n]
        rounds.append(torch.tensor(pairs, device=device).T)
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def custom_kernel(data: input_t) -> output_t:
    a, n = data.clone(), data.shape[-1]
    q = torch.eye(n, device=a.device).repeat(len(a), 1, 1)
    for first, second in tournament(n, a.device) * SWEEPS:
        p, r, x = a[:, first, first], a[:, second, second], a[:, first, second]
        angle = 0.5 * torch.atan2(2 * x, r - p)
        angle = torch.where(angle.abs() > torch.pi / 4, angle - angle.sign() * torch.pi / 2, angle)
        c, s = angle.cos()[:, None], angle.sin()[:, None]
        for matrix in (a, a.mT, q):
            one, other = matrix[:, :, first], matrix[:, :, second]
            matrix[:, :, first], matrix[:, :, second] = c * one - s * other, s * one + c * other
    values, order = a.diagonal(dim1=-2, dim2=-1).sort(dim=-1)
    return q.gather(2, order[:, None].expand_as(q)), values
