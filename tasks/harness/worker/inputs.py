"""The inputs of one call, as tensors over the judge's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from tasks.harness.shared.arenas import Arena
from tasks.harness.shared.values import identity, tensor_nodes, unpack


@dataclass(kw_only=True)
class Inputs:
    """One call's inputs."""

    value: Any
    #: As the task made it, where the kernel takes another form.
    raw: Any
    #: Addresses of the arena in this process.
    addresses: range
    #: Identity of each input storage -> its number.
    storages: Mapping[int, int]
    #: Keeps the storages alive, so that their identities stay unique whatever the kernel does to its argument.
    views: Sequence[torch.Tensor]
    cuda: bool

    @classmethod
    def build(
        cls, arena: Arena, storages: Sequence[tuple[int, int]], tree: Any, *, adapt: Callable[[Any], Any]
    ) -> Self:
        """Build the inputs that `tree` describes, over an arena that holds them, now or later.

        `storages`: offset and bytes of each in the arena; `adapt`: makes the kernel's argument from the inputs as the
        task made them.
        """
        views = [arena.bytes_at(offset, nbytes) for offset, nbytes in storages]
        raw = unpack(tree, views)
        cuda = any(node["device"] != "cpu" for node in tensor_nodes(tree))
        identities = {identity(view): number for number, view in enumerate(views) if view.numel()}
        return cls(
            value=adapt(raw),
            raw=raw,
            addresses=arena.addresses,
            storages={} if cuda else identities,
            views=views,
            cuda=cuda,
        )


def map_memory(descriptor: int, size: int) -> Arena:
    """Map memory of the judge's. The caller keeps the descriptor."""
    arena = Arena(descriptor, size)
    arena.forget()
    return arena
