"""The problems of AMD's boards on one device."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.oracle import Oracle


def value(code: int) -> float:
    """What a code of e4m3fnuz stands for."""
    if code == 0x80:
        return float("nan")
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = (mantissa + (8 if exponent else 0)) * 2.0 ** (max(exponent, 1) - 11)
    return -magnitude if code & 0x80 else magnitude


VALUES = torch.tensor([value(code) for code in range(256)], dtype=torch.float64)


def wide(codes: torch.Tensor, scales: torch.Tensor, rows: int) -> torch.Tensor:
    """A matrix of codes in float64, by the task's description: a scale per so many rows and 128 columns."""
    row, column = torch.meshgrid(*(torch.arange(size) for size in codes.shape), indexing="ij")
    return VALUES[codes.view(torch.uint8).int()] * scales[row // rows, column // 128].double()


def amd_fp8_mm(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The product of the two matrices."""
    a, b, a_scale, b_scale, _ = data
    return wide(a, a_scale, 1) @ wide(b, b_scale, 128).T


def turned(values: torch.Tensor, position: int) -> torch.Tensor:
    """64 values as 32 complex numbers, each turned by the angle of the task's description."""
    near = torch.tensor([9984.0 ** (-i / 32) for i in range(32)], dtype=torch.float64).bfloat16().double()
    angle = (torch.tensor(float(position)).bfloat16().double() * near).bfloat16().double()
    turn = torch.complex(torch.cos(angle).bfloat16().double(), torch.sin(angle).bfloat16().double())
    product = torch.complex(values[..., :32], values[..., 32:]) * turn
    return torch.cat((product.real, product.imag), dim=-1)


def amd_mla_decode(data: tuple[Any, ...]) -> list[torch.Tensor]:
    """The steps of the description, one sequence and one head after the other."""
    config, x, kv_cache = data
    cache, last = kv_cache.data.clone(), kv_cache.seq_len
    names = ("Q_proj_down_weight", "Q_proj_up_weight", "KV_proj_down_weight", "KV_proj_up_weight", "wo_weight")
    query_down, query_up, entry_down, entry_up, out = (getattr(config, name).double() for name in names)
    rows = []
    for sequence, token in enumerate(x[:, 0].double()):
        cache[sequence, last] = (entry_down @ token).bfloat16()
        entries = cache[sequence, : last + 1].double()
        shared = torch.stack([turned(entry, place) for place, entry in enumerate(entries[:, 512:])])
        results = []
        for head in range(config.n_heads):
            query = query_up[head * 192 : head * 192 + 192] @ (query_down @ token)
            ups = entries[:, :512] @ entry_up[head * 256 : head * 256 + 256].T
            scores = (ups[:, :128] @ query[:128] + shared @ turned(query[128:], last)) / 192**0.5
            powers = torch.exp(scores - scores.max())
            results.append(powers / powers.sum() @ ups[:, 128:])
        rows.append(out @ torch.cat(results))
    return [torch.stack(rows)[:, None], cache.double()]


Moe = tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, int]]


def through(x: torch.Tensor, weights: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """What an expert makes of one token."""
    gate, up, down = (weights[f"{name}.{index}.weight"].double() for index in range(3))
    gated = gate.T @ x
    return down.T @ (gated / (1 + torch.exp(-gated)) * (up.T @ x))


def amd_moe(data: Moe) -> torch.Tensor:
    """One token after the other, through each of its experts."""
    tokens, weights, config = data
    total = torch.zeros(tokens.shape, dtype=torch.float64)
    for place in range(tokens.shape[0] * tokens.shape[1]):
        x = tokens.flatten(0, 1)[place].double()
        powers = torch.exp(weights["router.weight"].double() @ x)
        scores = powers / powers.sum()
        sums = through(x, weights, "shared_experts")
        for index in scores.argsort(descending=True)[: config["n_experts_per_token"]].tolist():
            sums += scores[index] * through(x, weights, f"experts.{index}")
        total.view(-1, tokens.shape[2])[place] = sums
    return total


ORACLES = {
    "amd_fp8_mm": Oracle(amd_fp8_mm, torch.bfloat16),
    "amd_mla_decode": Oracle(amd_mla_decode, torch.bfloat16),
    "amd_moe": Oracle(amd_moe, torch.float16),
}
