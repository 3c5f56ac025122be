"""What both sides of the wire must see alike of a module: its state, its output, and arguments of further kinds.

The wire has no kind for configurations, classes and functions of torch, dicts, slices.

Each becomes a dict with a mark, and is made again on the other side. Only names below torch are looked up, so nothing
that is sent can name code of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from tasks.harness.shared.values import DTYPES, Unsupported

from .paritybench import Config

_MARK = "\N{START OF HEADING}kind"
#: Classes of tensors that have nothing of their own but numbers.
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_ROOT = "torch"


def encode_value(value: object) -> object:  # noqa: PLR0911 one branch per kind of value
    """A value with everything in it that the wire can carry.

    Raises:
        Unsupported: a class or function from outside torch, which the other side lacks.
    """
    if isinstance(value, SimpleNamespace):
        kind = "config" if isinstance(value, Config) else "namespace"
        return {_MARK: kind, "items": {key: encode_value(item) for key, item in vars(value).items()}}
    if isinstance(value, (type, *_FUNCTIONS)):
        return {_MARK: "name", "name": _name_of(value)}
    if isinstance(value, slice):
        return {_MARK: "slice", "items": [value.start, value.stop, value.step]}
    if isinstance(value, (set, frozenset)):
        return {_MARK: type(value).__name__, "items": [encode_value(item) for item in value]}
    if type(value) is dict and not all(type(key) is str for key in value):
        return {_MARK: "pairs", "items": [[encode_value(key), encode_value(item)] for key, item in value.items()]}
    if isinstance(value, dict):
        return {key: encode_value(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(encode_value(item) for item in value)  # type: ignore[call-arg, attr-defined]  # a tuple or a list
    if isinstance(value, torch.nn.Parameter):
        return value.detach()
    return value


def decode_value(value: Any) -> Any:
    """The value that was encoded.

    Raises:
        Unsupported: a name that is not below torch.
    """
    if type(value) in (tuple, list):
        return type(value)(decode_value(item) for item in value)
    if type(value) is not dict:
        return value
    if _MARK not in value:
        return {key: decode_value(item) for key, item in value.items()}
    return _MAKERS[value[_MARK]](value)


def plain(value: Any) -> Any:
    """An output with tuples, dicts and tensors in place of their subclasses, Python's numbers in place of numpy's.

    Of namespaces and dataclasses their attributes count.
    """
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return value if kind in _PLAIN else value.as_subclass(torch.Tensor)
    if isinstance(value, tuple) and kind is not torch.Size:
        if kind is tuple and all(type(item) is torch.Tensor for item in value):
            return value
        return tuple(plain(item) for item in value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    elif is_dataclass(value) and not isinstance(value, (dict, type)):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def loadable_state(module: Any) -> dict[str, torch.Tensor]:
    """The entries of a module's state_dict that other numbers can be copied to, by name.

    Others are constants of its constructor: views that repeat an element, sparse, quantised and inference tensors, and
    those of a class of their own. And lazy ones have no numbers yet.
    """
    if not isinstance(module, torch.nn.Module):
        return {}
    return {
        name_of_entry(name): item
        for name, item in module.state_dict(keep_vars=True).items()
        if type(item) in _PLAIN
        and item.layout is torch.strided
        and item.dtype in DTYPES.values()
        and item.device.type != "meta"
        and not item.is_inference()
        and not any(size > 1 and stride == 0 for size, stride in zip(item.shape, item.stride(), strict=True))
    }


def name_of_entry(name: str) -> str:
    """The name of an entry of a state_dict, whether or not the part that has it is compiled."""
    return name.replace("_orig_mod.", "")


def has_lazy_parts(module: Any) -> bool:
    """Whether some parameters or buffers take their shapes from the first call."""
    return isinstance(module, torch.nn.Module) and any(map(is_lazy, module.state_dict(keep_vars=True).values()))


def _name_of(value: object) -> str:
    module, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
    if module == "builtins" and isinstance(value, type):
        return f"builtins.{name}"
    # A function written in C names a class of torch that holds it.
    for where, own in ((module, name), ("torch", getattr(value, "__name__", ""))):
        if where.partition(".")[0] == _ROOT and _member(where, own) is value:
            return f"{where}.{own}"
    raise Unsupported(f"{module}.{name} cannot be handed to the worker: only torch's own classes and functions can")


def _member(module: str, name: str) -> object:
    """What a module calls by a name; None: nothing."""
    try:
        value: object = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return None
    return value


def _named(name: str) -> object:
    module, _, own = name.rpartition(".")
    value = _member(module, own) if module.partition(".")[0] in (_ROOT, "builtins") else None
    if value is None:
        raise Unsupported(f"{name} is not known here")
    return value


_MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "config": lambda value: Config(**decode_value(value["items"])),
    "namespace": lambda value: SimpleNamespace(**decode_value(value["items"])),
    "name": lambda value: _named(value["name"]),
    "slice": lambda value: slice(*value["items"]),
    "set": lambda value: {decode_value(item) for item in value["items"]},
    "frozenset": lambda value: frozenset(decode_value(item) for item in value["items"]),
    "pairs": lambda value: {decode_value(key): decode_value(item) for key, item in value["items"]},
}
_FUNCTIONS = (type(encode_value), type(len), type(torch.relu))
