"""The problems with MXFP4 weights or caches, from the format's definition alone."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.oracle import Oracle

MAGNITUDES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def rounded(values: torch.Tensor, *, ties: bool = False) -> torch.Tensor:
    """What MXFP4 holds of (rows, k) values, by the task's description: frexp and the nearest of all candidates.

    With `ties` a value may be halfway between two; then it is the lower magnitude.
    """
    blocks = values.double().reshape(values.shape[0], -1, 32)
    fraction, exponent = torch.frexp(blocks.abs().amax(dim=-1, keepdim=True))
    # A fraction of 0.875 to 1 times a power of two: 1.75 and above times the one below.
    scale = 2.0 ** (exponent - 1 + (fraction >= 0.875).int() - 2).double()
    distances = ((blocks.abs() / scale).unsqueeze(-1) - MAGNITUDES).abs()
    nearest, code = distances.min(dim=-1)
    assert ties or bool(((distances == nearest.unsqueeze(-1)).sum(dim=-1) == 1).all()), "a value is halfway"
    return (MAGNITUDES[code] * scale).copysign(blocks).flatten(1)


def mxfp4_mm(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The product of the two matrices as MXFP4 holds them."""
    return rounded(data[0]) @ rounded(data[1]).T


def decoded(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """(rows, k) values of an expert's matrix, nibble by nibble."""
    raw = packed.view(torch.uint8).long()
    codes = torch.stack((raw % 16, raw // 16), dim=-1).flatten(1)
    values = MAGNITUDES[codes % 8] * (1 - 2 * (codes // 8))
    return values * (2.0 ** (scales.view(torch.uint8).double() - 127)).repeat_interleave(32, dim=1)


def moe_mxfp4(data: tuple[Any, ...]) -> torch.Tensor:
    """One token after the other, through each of its experts."""
    hidden_states, gate_up, down, gate_up_scale, down_scale, *_, factors, chosen, config = data
    tokens, total = rounded(hidden_states), torch.zeros(hidden_states.shape, dtype=torch.float64)
    inner = [decoded(*pair) for pair in zip(gate_up, gate_up_scale, strict=True)]
    outer = [decoded(*pair) for pair in zip(down, down_scale, strict=True)]
    for token, x in enumerate(tokens):
        for expert, factor in zip(chosen[token].tolist(), factors[token].tolist(), strict=True):
            gate, up = inner[expert][: config["d_expert"]] @ x, inner[expert][config["d_expert"] :] @ x
            hidden = (gate / (1 + torch.exp(-gate)) * up).bfloat16()
            total[token] += factor * (outer[expert] @ rounded(hidden[None], ties=True)[0])
    return total


def mixed_mla(data: tuple[Any, ...]) -> torch.Tensor:
    """Each head of each sequence, with the cache in eight bits."""
    q, kv_data, _, kv_indptr, _ = data
    codes, scale = kv_data["fp8"]
    result = torch.zeros(q.shape[0], 16, 512, dtype=torch.float64)
    for sequence in range(q.shape[0]):
        entries = codes[kv_indptr[sequence] : kv_indptr[sequence + 1], 0].double() * scale.double()
        for head in range(16):
            scores = entries @ q[sequence, head].double() / 24
            powers = torch.exp(scores - scores.max())
            result[sequence, head] = (powers[:, None] * entries[:, :512]).sum(dim=0) / powers.sum()
    return result


ORACLES = {
    "mxfp4_mm": Oracle(mxfp4_mm, torch.bfloat16),
    "moe_mxfp4": Oracle(moe_mxfp4, torch.bfloat16, off=0.5),
    "mixed_mla": Oracle(mixed_mla, torch.bfloat16, off=0.15),
}


def shuffled_places(rows: int, width: int) -> torch.Tensor:
    """Where the byte of each row and place of packed values lies: in tiles of 16 rows by 16 bytes, two side by side."""
    r, b = torch.meshgrid(torch.arange(rows), torch.arange(width), indexing="ij")
    tile = r // 16 * (width // 32) + b // 32
    return tile * 512 + b % 32 // 16 * 256 + r % 16 * 16 + b % 16


def shuffled_scale_places(rows: int, blocks: int, across: int) -> torch.Tensor:
    """Where the scale of each row and block lies, by the descriptions' formula."""
    r, j = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
    return r // 32 * 32 * across + j // 8 * 256 + j % 4 * 64 + r % 16 * 4 + j % 8 // 4 * 2 + r % 32 // 16
