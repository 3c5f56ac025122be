"""Layers, and parts of layers."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.oracle import Oracle


def causal_conv1d(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Each channel times a matrix with the weights on its diagonals, and the bias."""
    x, weight, bias = (tensor.double() for tensor in data)
    samples, width = x.shape[2], weight.shape[1]
    time, source = torch.meshgrid(torch.arange(samples), torch.arange(samples), indexing="ij")
    place = source - time + width - 1
    matrices = weight[:, place.clamp(0, width - 1)] * ((place >= 0) & (place < width))
    return torch.einsum("dts,bds->bdt", matrices, x) + bias[:, None]


def cross_entropy(data: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Losses and gradients, one row after the other."""
    losses, gradients = [], []
    for logits, target, factor in zip(*data, strict=True):
        powers = torch.exp(logits.double() - logits.double().max())
        wanted = torch.arange(logits.numel()) == target
        losses.append(powers.sum().log() + logits.double().max() - logits[wanted].double().sum())
        gradients.append((powers / powers.sum() - wanted.double()) * factor.double())
    return [torch.stack(losses), torch.stack(gradients)]


def fp8_quant(data: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Quotients and scales, one group after the other."""
    x, _, x_s = data
    quotients, scales = torch.empty_like(x, dtype=torch.float64), torch.empty_like(x_s, dtype=torch.float64)
    size = x.shape[1] // x_s.shape[1]
    for token in range(x_s.shape[0]):
        for group in range(x_s.shape[1]):
            place = slice(group * size, group * size + size)
            numbers = x[token, place].tolist()
            scale = max(1e-10, *map(abs, numbers)) / 448
            quotients[token, place] = torch.tensor([number / scale for number in numbers], dtype=torch.float64)
            scales[token, group] = scale
    return [quotients, scales]


def gated_deltanet_chunk_fwd_h(data: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Step by step: each makes the state smaller by its own gate, and adds its value for its key."""
    k, w, u, g = (each.double() for each in data)
    state = k.new_zeros(k.shape[0], k.shape[2], k.shape[3], u.shape[3])
    h, v_new = [], []
    for step in range(k.shape[1]):
        if step % 64 == 0:
            h.append(state.clone())
        v_new.append(u[:, step] - torch.einsum("bhk,bhkv->bhv", w[:, step], h[-1]))
        gate = g[:, step] - (g[:, step - 1] if step % 64 else 0)
        state = torch.exp(gate)[..., None, None] * state + k[:, step, :, :, None] * v_new[-1][:, :, None]
    return [torch.stack(h, dim=1), torch.stack(v_new, dim=1)]


def gated_deltanet_chunk_fwd_o(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Step by step, from each chunk's state on: what a query finds in the state after its step."""
    q, k, v_new, h, g = (each.double() for each in data)
    state, rows = h[:, 0], []
    for step in range(q.shape[1]):
        first = step % 64 == 0
        state = h[:, step // 64] if first else state
        gate = g[:, step] - (0 if first else g[:, step - 1])
        state = torch.exp(gate)[..., None, None] * state + k[:, step, :, :, None] * v_new[:, step, :, None]
        rows.append(torch.einsum("bhk,bhkv->bhv", q[:, step], state) / q.shape[3] ** 0.5)
    return torch.stack(rows, dim=1)


def gated_deltanet_recompute_w_u(data: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Column after column of A: what a step adds to all steps of its chunk."""
    k, v, beta, matrix, g = (each.double().reshape(each.shape[0], -1, 64, *each.shape[2:]) for each in data)
    w, u = torch.zeros_like(k), torch.zeros_like(v)
    for place in range(64):
        factor = matrix[..., place] * beta[:, :, place, None]
        u += factor.unsqueeze(-1) * v[:, :, place, None]
        w += (factor * torch.exp(g[:, :, place, None])).unsqueeze(-1) * k[:, :, place, None]
    return [w.flatten(1, 2), u.flatten(1, 2)]


def normalized(values: torch.Tensor, weights: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """A layer norm by its definition."""
    centred = values - values.mean(dim=-1, keepdim=True)
    scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def trimul(data: tuple[Any, ...]) -> torch.Tensor:
    """The steps of the description, one pair of rows after the other."""
    x, mask, stored, _ = data
    weights = {name: weight.double() for name, weight in stored.items()}
    normed = normalized(x.double(), weights, "norm")
    gates = {
        name: 1 / (1 + torch.exp(-(normed @ weights[f"{name}_gate.weight"].T))) for name in ("left", "right", "out")
    }
    left, right = (
        normed @ weights[f"{side}_proj.weight"].T * gates[side] * mask[..., None].double() for side in ("left", "right")
    )
    rows = range(x.shape[1])
    sums = torch.stack([torch.stack([(left[:, i] * right[:, j]).sum(dim=1) for j in rows], dim=1) for i in rows], dim=1)
    output: torch.Tensor = (normalized(sums, weights, "to_out_norm") * gates["out"]) @ weights["to_out.weight"].T
    return output


ORACLES = {
    "causal_conv1d": Oracle(causal_conv1d, torch.float32),
    "cross_entropy": Oracle(cross_entropy, (torch.float32, torch.bfloat16)),
    "fp8_quant": Oracle(fp8_quant, torch.float32),
    "gated_deltanet_chunk_fwd_h": Oracle(gated_deltanet_chunk_fwd_h, torch.float32),
    "gated_deltanet_chunk_fwd_o": Oracle(gated_deltanet_chunk_fwd_o, torch.float32),
    "gated_deltanet_recompute_w_u": Oracle(gated_deltanet_recompute_w_u, torch.float32),
    "trimul": Oracle(trimul, torch.float32),
}
