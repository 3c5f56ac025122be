"""amd_mla_decode."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.oracle import Oracle


def turned(values: torch.Tensor, position: int) -> torch.Tensor:
    """64 values as 32 complex numbers, each turned by the angle of the task's description."""
    near = torch.tensor([9984.0 ** (-i / 32) for i in range(32)], dtype=torch.float64).bfloat16().double()
    angle = (torch.tensor(float(position)).bfloat16().double() * near).bfloat16().double()
    turn = torch.complex(torch.cos(angle).bfloat16().double(), torch.sin(angle).bfloat16().double())
    product = torch.complex(values[..., :32], values[..., 32:]) * turn
    return torch.cat((product.real, product.imag), dim=-1)


def expected(data: tuple[Any, ...]) -> list[torch.Tensor]:
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


ORACLE = Oracle(
    expected=expected,
    dtype=torch.bfloat16,
    tests=4,
    benchmarks=2,
    largest={"batchsize": 128, "dim": 7168, "dq": 1536, "prefill": 6144, "nheads": 128},
)
