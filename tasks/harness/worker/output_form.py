"""What outputs of a case have in common, so that an address for each tensor says all of the next one.

All of this is inside the timed span, and is subtracted with the hand-over: a submission that does it in machine code
keeps what it saves. So the usual output, of contiguous tensors, is compared in one step of torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from tasks.harness.shared.values import DTYPES

#: Classes of plain tensors.
_OWN = (torch.Tensor, torch.nn.Parameter)
#: The class of a container, the keys of a dict, and what is in it. Of a tensor its class alone.
_Tree = tuple[Any, Any, Any]


@dataclass(frozen=True, kw_only=True)
class OutputForm:
    """Containers, dtypes and shapes of an output of plain tensors of the CPU."""

    tree: _Tree
    #: Of each tensor.
    kinds: Sequence[tuple[torch.dtype, torch.Size]]
    #: Torch's own comparison of other tensors with these, if all of these lie in memory as they are. None: torch has
    #: none, or some do not.
    matches: Callable[..., bool] | None

    @classmethod
    def of(cls, output: object) -> Self | None:
        """The form of an output with a layout; None if a tensor of it is not plain."""
        tensors: list[torch.Tensor] = []
        tree = _tree(output, tensors)
        if not all(map(_plain, tensors)):
            return None
        kinds = [(tensor.dtype, tensor.shape) for tensor in tensors]
        matches = _matcher(tensors) if tensors and all(map(_as_it_lies, tensors)) else None
        return cls(tree=tree, kinds=kinds, matches=matches)

    def addresses(self, output: object, copies: list[torch.Tensor]) -> list[int] | None:
        """The address of each tensor of an output, or of its copy; None if it has another form.

        `copies`: those of tensors that are lazy or not contiguous are added here.
        """
        tensors: list[torch.Tensor] = []
        # Modes that the submission has entered, as `torch.device`, see nothing of this, and make it no slower.
        with torch._C.DisableTorchFunction():  # noqa: SLF001 torch has no public name for it
            if not _gathered(output, self.tree, tensors):
                return None
            if self.matches is None or not self.matches(*tensors):
                for number, (tensor, kind) in enumerate(zip(tensors, self.kinds, strict=True)):
                    if tensor.layout is not torch.strided or (tensor.dtype, tensor.shape) != kind or not tensor.is_cpu:
                        return None
                    if not _as_it_lies(tensor):
                        tensors[number] = tensor.resolve_conj().resolve_neg().contiguous()
                        copies.append(tensors[number])
            return [tensor.data_ptr() for tensor in tensors]


def _matcher(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """A function that says whether class, dtype, shape, strides and device of tensors are those of these."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        matches: Callable[..., bool] = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        # It has no promise of torch's: what does not work as here is not used.
        return matches if matches(*tensors) else None
    except Exception:  # noqa: BLE001 see above
        return None


def _tree(value: Any, tensors: list[torch.Tensor]) -> _Tree:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return type(value), None, None
    keys = list(value) if isinstance(value, dict) else None
    return type(value), keys, [_tree(item, tensors) for item in _items(value)]


def _items(value: Any) -> Sequence[Any]:
    return () if value is None else list(value.values()) if isinstance(value, dict) else value


def _gathered(value: Any, tree: _Tree, tensors: list[torch.Tensor]) -> bool:
    """Add the tensors of a value; False if it has other containers, or tensors of other classes."""
    kind, keys, inside = tree
    if type(value) is not kind:
        return False
    if inside is None:
        tensors.append(value)
        return True
    items = _items(value)
    if len(items) != len(inside) or (keys is not None and list(value) != keys):
        return False
    return all(_gathered(item, each, tensors) for item, each in zip(items, inside, strict=True))


def _as_it_lies(tensor: torch.Tensor) -> bool:
    """Whether its bytes, in order, are its values."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _plain(tensor: torch.Tensor) -> bool:
    own = type(tensor) in _OWN and tensor.layout is torch.strided and not tensor.is_nested
    return own and tensor.is_cpu and tensor.dtype in DTYPES.values()
