"""Inputs and stages of a Gated DeltaNet layer; a file that only the judge has (`private` in runner.yml).

Self-contained. The layer is that of arXiv 2412.06464: a state S per sequence and head, which each step makes
`exp(a) * (S - beta k (k . S)) + beta k v`, with a the logarithm of its gate and k its key; the output is
`q . S / sqrt(K)`. In chunks of 64 steps: `wy_matrix`, then `w_and_u`, `states`, and the outputs.

Gates differ by head, from those that forget four fifths of the state in a chunk to those that forget a tenth, so that
chunks depend on those before them. One step in 256 forgets everything: there `exp(-g)` is beyond float32, and a kernel
has to subtract before it takes the exponential.

Tensors of one value, key or gate per step are of shape (B, T, H, ...). All arithmetic is in float64, whatever the
tensors are, so that results are exact when they are rounded once.
"""

from __future__ import annotations

import torch

CHUNK = 64
#: Of the values. Products in TF32, even where it cuts bits off, then stay within a tolerance of 1e-3, and those in
#: bfloat16 do not: of the tolerance, the former reached 0.7 and 0.9 at the edge, the latter 1.3 to 5.
VALUE_DEVIATION = 0.25
#: What a step adds to the logarithm of the gates where it forgets everything before it.
_RESET = -120.0
#: Steps of which one does.
_STEPS_PER_RESET = 256

Tensors = tuple[torch.Tensor, ...]


def to_chunks(values: torch.Tensor) -> torch.Tensor:
    """(B, T, H, ...) -> (B, H, T / 64, 64, ...), in float64."""
    return values.double().reshape(values.shape[0], -1, CHUNK, *values.shape[2:]).movedim(3, 1)


def from_chunks(values: torch.Tensor) -> torch.Tensor:
    """The inverse of `to_chunks`, in float32."""
    return values.movedim(1, 3).flatten(1, 2).float().contiguous()


def layer(*, B: int, T: int, H: int, K: int, V: int, seed: int, edge: int) -> Tensors:
    """Queries, keys of length 1, values, betas and gates (the sum of their logarithms since the chunk began).

    Args:
        B: sequences.
        T: steps, a multiple of 64.
        H: heads.
        K: size of a query and of a key.
        V: size of a value.
        seed: of all that is random.
        edge: not 0 makes keys more alike and betas greater, and nothing is ever forgotten.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, device=device, generator=generator)

    q, k, v = normal(B, T, H, K), normal(B, T, H, K), VALUE_DEVIATION * normal(B, T, H, V)
    beta = torch.sigmoid(normal(B, T, H) + (1.0 if edge else 0.0))
    common = normal(B, 1, H, K)
    rates = torch.exp2(-torch.randint(5, 10, (B, 1, H), device=device, generator=generator))
    resets = torch.randint(0, _STEPS_PER_RESET, (B, T, H), device=device, generator=generator) == 0
    steps = _RESET * resets - normal(B, T, H).abs() * rates
    if edge:
        k += 0.5 * common
        steps *= 0
    k /= k.norm(dim=-1, keepdim=True)
    g = from_chunks(to_chunks(steps).cumsum(dim=-1))
    return (*(each.float() for each in (q, k, v, beta)), g)


def decays(g: torch.Tensor) -> torch.Tensor:
    """exp(g[i] - g[j]) where j is i or before it, else 0: (..., 64) -> (..., 64, 64)."""
    return (g.unsqueeze(-1) - g.unsqueeze(-2)).tril().exp().tril()


def wy_matrix(k: torch.Tensor, beta: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """For each chunk the inverse of 1 + tril(beta[i] (k[i] . k[j]) exp(g[i] - g[j]), -1), as (B, T, H, 64)."""
    keys, gates = to_chunks(k), to_chunks(g)
    lower = (to_chunks(beta).unsqueeze(-1) * (keys @ keys.mT) * decays(gates)).tril(-1)
    one = torch.eye(CHUNK, dtype=torch.float64, device=k.device)
    return from_chunks(torch.linalg.solve_triangular(one + lower, one.expand_as(lower), upper=False))


def w_and_u(k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, a: torch.Tensor, g: torch.Tensor) -> Tensors:
    """What the steps of a chunk read and write together: A (beta exp(g) k) and A (beta v)."""
    matrix, betas, gates = to_chunks(a), to_chunks(beta).unsqueeze(-1), to_chunks(g).unsqueeze(-1)
    w, u = matrix @ (betas * gates.exp() * to_chunks(k)), matrix @ (betas * to_chunks(v))
    return from_chunks(w), from_chunks(u)


def states(k: torch.Tensor, w: torch.Tensor, u: torch.Tensor, g: torch.Tensor) -> Tensors:
    """The state before each chunk, (B, T / 64, H, K, V), and what each step adds to it for its key, (B, T, H, V)."""
    keys, reads, writes, gates = (to_chunks(each) for each in (k, w, u, g))
    state = torch.zeros_like(keys[:, :, 0].mT @ writes[:, :, 0])
    before, added = [], []
    for chunk in range(keys.shape[2]):
        before.append(state)
        new = writes[:, :, chunk] - reads[:, :, chunk] @ state
        added.append(new)
        last = gates[:, :, chunk, -1:]
        left = (last - gates[:, :, chunk]).exp().unsqueeze(-1)
        state = last.exp().unsqueeze(-1) * state + keys[:, :, chunk].mT @ (left * new)
    return torch.stack(before, dim=1).float(), from_chunks(torch.stack(added, dim=2))
