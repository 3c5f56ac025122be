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
#: The type, with dtype and shape of a tensor, or keys and items of a container.
_Tree = tuple[Any, Any, Any]


@dataclass(frozen=True, kw_only=True)
class OutputForm:
    """Containers, dtypes and shapes of an output of plain tensors of the CPU."""

    tree: _Tree
    #: For tensors that lie there as they are, alone or in one list or tuple: the class of that, and torch's own
    #: comparison of others with them. None: for others, or torch has none.
    sequence: type[Sequence[Any]] | None = None
    count: int = 1
    matches: Callable[..., bool] | None = None

    @classmethod
    def of(cls, output: Any) -> Self | None:
        """The form of an output with a layout; None if a tensor of it is not plain."""
        tree = _tree(output)
        if tree is None:
            return None
        sequence = type(output) if type(output) in (tuple, list) else None
        tensors: Sequence[Any] = (output,) if sequence is None else output
        if not tensors or not all(type(each) in _OWN and _as_it_lies(each) for each in tensors):
            return cls(tree=tree)
        return cls(tree=tree, sequence=sequence, count=len(tensors), matches=_matcher(tensors))

    def addresses(self, output: Any, copies: list[torch.Tensor]) -> list[int] | None:
        """The address of each tensor of an output, or of its copy; None if it has another form.

        `copies`: those of tensors that are lazy or not contiguous are added here.
        """
        matches = self.matches
        # Modes that the submission has entered, as `torch.device`, see nothing of this, and make it no slower.
        with torch._C.DisableTorchFunction():  # noqa: SLF001 torch has no public name for it
            if matches is not None:
                if self.sequence is None:
                    if matches(output):
                        return [output.data_ptr()]
                elif type(output) is self.sequence and len(output) == self.count and matches(*output):
                    return [tensor.data_ptr() for tensor in output]
            addresses: list[int] = []
            return addresses if _add_addresses(output, self.tree, addresses, copies) else None


def _matcher(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """A function that says whether class, dtype, shape, strides and device of tensors are those of these."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        matches: Callable[..., bool] = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        # It has no promise of torch's: what does not work as here is not used.
        return matches if matches(*tensors) else None
    except Exception:  # noqa: BLE001 see above
        return None


def _tree(value: Any) -> _Tree | None:
    if isinstance(value, torch.Tensor):
        return (type(value), value.dtype, value.shape) if _plain(value) else None
    keys = list(value) if isinstance(value, dict) else None
    items = [_tree(item) for item in _items(value)]
    return None if None in items else (type(value), keys, items)


def _items(value: Any) -> Sequence[Any]:
    return () if value is None else list(value.values()) if isinstance(value, dict) else value


def _add_addresses(value: Any, tree: _Tree, addresses: list[int], copies: list[torch.Tensor]) -> bool:
    """Add the address of each tensor of a value, or of its copy; False if the value has another form."""
    kind, first, second = tree
    if type(value) is not kind:
        return False
    if kind in _OWN:
        if value.layout is not torch.strided or value.dtype != first or value.shape != second or not value.is_cpu:
            return False
        if not _as_it_lies(value):
            value = value.resolve_conj().resolve_neg().contiguous()
            copies.append(value)
        addresses.append(value.data_ptr())
        return True
    items = _items(value)
    if len(items) != len(second) or (first is not None and list(value) != first):
        return False
    return all(_add_addresses(item, each, addresses, copies) for item, each in zip(items, second, strict=True))


def _as_it_lies(tensor: torch.Tensor) -> bool:
    """Whether its bytes, in order, are its values."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _plain(tensor: torch.Tensor) -> bool:
    own = type(tensor) in _OWN and tensor.layout is torch.strided and not tensor.is_nested
    return own and tensor.is_cpu and tensor.dtype in DTYPES.values()
