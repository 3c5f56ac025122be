"""Weights: which of the reference's a candidate takes by name, and shifted ones for some of the calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

State = Mapping[str, torch.Tensor]
#: Buffers that training moves. Every other buffer (a mask, a table) is a part of the function.
_MOVED = ("running_mean", "running_var")


def matching(reference: State, entries: Sequence[tuple[str, tuple[int, ...], str]]) -> list[str]:
    """The entries that both sides have, of equal name, shape and dtype."""
    shapes = {name: (shape, dtype) for name, shape, dtype in entries}
    return [name for name, item in reference.items() if shapes.get(name) == (tuple(item.shape), str(item.dtype))]


def describe_match(
    reference: State, entries: Sequence[tuple[str, tuple[int, ...], str]], matched: Sequence[str]
) -> str:
    """How a candidate gets its weights: state_dict, seed, both or none."""
    if not reference and not entries:
        return "none"
    if not matched:
        return "seed"
    return "state_dict" if is_full(reference, entries, matched) else "both"


def is_full(reference: State, entries: Sequence[tuple[str, tuple[int, ...], str]], matched: Sequence[str]) -> bool:
    """Whether all entries match and the candidate has no others, so that shifted weights reach all of it."""
    return len(matched) == len(reference) == len({name for name, _, _ in entries})


def shifted(state: State, parameters: frozenset[str], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """The state with other parameters, running means and running variances (these stay positive).

    Fresh normalisation layers, affine parameters and biases are the identity or zero: with them a kernel that skips
    them is right. The generator is the host's, wherever the state is.
    """
    changed = {}
    for name, item in state.items():
        last = name.rpartition(".")[2]
        if not item.is_floating_point() or (name not in parameters and last not in _MOVED):
            changed[name] = item.clone()
            continue
        noise = torch.randn(item.shape, generator=generator, dtype=torch.float32).to(item.device)
        if last == "running_var":
            value = item.float() * (0.5 + noise.abs().clamp(max=2.0))
        else:
            size = float(item.float().square().mean().sqrt()) if item.numel() else 0.0
            value = item.float() + 0.2 * (size or 1.0) * noise
        changed[name] = value.to(item.dtype)
    return changed
