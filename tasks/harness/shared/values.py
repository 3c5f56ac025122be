"""Inputs and outputs of a kernel, as a tree of JSON nodes plus raw bytes in an arena; never pickle.

A tensor is a descriptor: dtype name, shape, and where its bytes lie. Inputs keep strides, storage offsets and aliasing
(two views of one storage stay two views of one storage). Outputs travel contiguous. They are copied into the judge's
output arena. If the kernel returned an input buffer or a part of one, they are a reference to that buffer. The judge
checks every number that a worker sends against the arenas it made itself.

`pack` and `Snapshot` belong to the judge, `unpack` and `Outgoing` to the worker, `Layout` to both.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, is_dataclass
from dataclasses import fields as fields_of
from functools import cache
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch

from .arenas import PAGE_BYTES, Arena, aligned
from .wire import WireViolation

#: Every dtype whose tensors are plain bytes, by the name that both sides use. Older torch versions lack some.
DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    )
    if hasattr(torch, name)
}
_NAMES: Mapping[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}

#: Bytes per element.
ITEM_BYTES: Mapping[str, int] = {name: dtype.itemsize for name, dtype in DTYPES.items()}

MAX_DEPTH = 16
MAX_NODES = 1 << 14
MAX_DIMENSIONS = 64
_MAX_ELEMENTS = 1 << 62
MAX_TEXT = 1 << 16
#: Start of the padding range at the head of an arena, so that equal inputs do not lie at equal addresses.
_MAX_LEADING_PAGES = 16
#: Region number of the output arena in a tensor node; inputs count from 0.
OUTPUT_REGION = -1
#: Copies of more bytes use several threads.
_SMALL_BYTES = 256 << 10
#: Kinds of node whose items have names.
_PAIRS = ("dict", "record", "named")
#: Kinds of node that say nothing beside what a layout has.
_BYTES_ALONE = ("tensor", "tuple", "list", "dict", "none")


class Unsupported(TypeError):
    """A value of a kind that cannot be sent; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where a storage lies in its arena."""

    offset: int
    nbytes: int


@dataclass(kw_only=True)
class Packed:
    """A value taken apart: `tree` describes it, `storages` are its bytes (uint8, wherever they live)."""

    tree: Any
    storages: list[torch.Tensor] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of all storages."""
        return sum(storage.numel() for storage in self.storages)

    @property
    def tensors(self) -> int:
        """How many tensors the tree holds."""
        return sum(1 for _ in tensor_nodes(self.tree))

    @property
    def device(self) -> str | None:
        """The device of all its tensors; None if there are several."""
        devices = {node["device"] for node in tensor_nodes(self.tree)} or {"cpu"}
        return devices.pop() if len(devices) == 1 else None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each storage."""
        return tuple(storage.numel() for storage in self.storages)

    def place(self) -> tuple[list[Placed], int]:
        """A layout for the storages, and the size of the arena it needs; see `place`."""
        return place(self.sizes)

    def message(self, placed: Sequence[Placed], size: int) -> dict[str, Any]:
        """The keys of a message that lets a worker rebuild the value from an arena of `size` bytes."""
        storages = [[place.offset, place.nbytes] for place in placed]
        return {"tree": self.tree, "storages": storages, "size": size}

    def staged(self, placed: Sequence[Placed]) -> tuple[int, memoryview]:
        """The storages as they will lie in their arena: the offset of the first one, and the bytes from there on."""
        start = placed[0].offset if placed else 0
        end = max((place.offset + place.nbytes for place in placed), default=start)
        data = memoryview(bytearray(end - start))
        for storage, place in zip(self.storages, placed, strict=True):
            # On this thread alone: torch would split the copy among its threads, and wait for all of them.
            data[place.offset - start : place.offset - start + place.nbytes] = storage.cpu().numpy().data
        return start, data

    def write(self, arena: Arena, placed: Sequence[Placed]) -> None:
        """Copy the storages to their places."""
        for storage, place in zip(self.storages, placed, strict=True):
            arena.bytes_at(place.offset, place.nbytes).copy_(storage)


def _with_tensors(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A trusted or checked tree with each of its tensor nodes changed, in order."""
    match tree["t"]:
        case "tensor":
            return change(tree)
        case "tuple" | "list" | "size" as kind:
            return {"t": kind, "items": [_with_tensors(item, change) for item in tree["items"]]}
        case "dict" | "record" | "named" as kind:
            return {"t": kind, "items": [[key, _with_tensors(item, change)] for key, item in tree["items"]]}
        case "none":
            # Without what a worker may have added: of a checked tree only these keys have been checked.
            return {"t": "none"}
        case _:
            return tree


def place(sizes: Sequence[int], *, lead: bool = True) -> tuple[list[Placed], int]:
    """A layout for storages of so many bytes, and the size of the arena it needs.

    `lead`: after a random number of pages. Needed where the arena's own address does not differ from call to call.
    """
    offset = 0 if not lead else os.urandom(1)[0] % _MAX_LEADING_PAGES * PAGE_BYTES
    placed = []
    for nbytes in sizes:
        placed.append(Placed(offset=offset, nbytes=nbytes))
        offset += aligned(nbytes)
    return placed, offset


def size_of(placed: Sequence[Placed]) -> int:
    """The bytes of an arena with such a layout."""
    return max((each.offset + aligned(each.nbytes) for each in placed), default=0)


def identity(item: torch.Tensor) -> int:
    """A number that a tensor shares with its views and with no other living tensor."""
    key: int = item.untyped_storage()._cdata  # noqa: SLF001 torch offers no public identity of a storage
    return key


def _has_bytes(item: torch.Tensor) -> bool:
    """Whether a tensor's elements lie in memory: not those of meta, fake, freed and uninitialised ones."""
    try:
        return not item.numel() or item.untyped_storage().data_ptr() != 0
    except (RuntimeError, ValueError):
        # A class of its own, which keeps them elsewhere or computes them.
        return False


def pack(value: object, *, modules: frozenset[str] = frozenset()) -> Packed:
    """Take a kernel's input apart.

    Args:
        value: what generate_input made.
        modules: names of the task's own modules. An object of one of their classes is sent as a record of its
            attributes, because the worker lacks the class. It arrives as a namespace. Tuples with names keep them.

    Raises:
        Unsupported: something other than tensors, tuples, lists, dicts with text keys, numbers, text, None, dtypes,
            devices and records.
    """
    packed = Packed(tree=None)
    seen: dict[int, int] = {}

    def tensor(item: torch.Tensor) -> dict[str, Any]:
        if item.layout is not torch.strided or item.dtype not in _NAMES:
            raise Unsupported(f"a tensor of layout {item.layout} and dtype {item.dtype} cannot be handed to the worker")
        if not _has_bytes(item):
            raise Unsupported(f"a {type(item).__name__} without bytes in memory cannot be handed to the worker")
        plain = item
        if item.is_conj() or item.is_neg():
            plain = item.detach().resolve_conj().resolve_neg()
        storage = plain.untyped_storage()
        key = identity(plain)
        if key not in seen:
            seen[key] = len(packed.storages)
            packed.storages.append(torch.empty(0, dtype=torch.uint8, device=plain.device).set_(storage))
        return {
            "t": "tensor",
            "dtype": _NAMES[item.dtype],
            "shape": list(plain.shape),
            "stride": list(plain.stride()),
            "offset": plain.storage_offset(),
            "storage": seen[key],
            "device": str(plain.device),
            "grad": item.requires_grad,
        }

    def record(item: object) -> Mapping[str, object] | None:
        if isinstance(item, tuple | list):
            return {name: getattr(item, name) for name in getattr(item, "_fields", ())} or None
        if type(item).__module__ not in modules:
            return None
        if hasattr(item, "__dict__"):
            return vars(item)
        return {each.name: getattr(item, each.name) for each in fields_of(item)} if is_dataclass(item) else None

    packed.tree = _describe(value, tensor, _refuse, record)
    return packed


def _refuse(name: str) -> Any:
    raise Unsupported(
        f"a {name} cannot be handed to the worker; supported are tensors, tuples, lists, dicts with text keys, "
        "numbers, text, None, torch.dtype, torch.device and, in a task, objects of its own classes with such attributes"
    )


def unpack(tree: object, storages: Sequence[torch.Tensor]) -> object:
    """Rebuild a kernel's input from the judge's tree and uint8 tensors over the input arena."""
    on_device: dict[tuple[int, str], torch.UntypedStorage] = {}

    def tensor(node: Mapping[str, Any]) -> torch.Tensor:
        device, index = node["device"], node["storage"]
        if (index, device) not in on_device:
            on_device[index, device] = storages[index].to(device).untyped_storage()
        item = torch.empty(0, dtype=DTYPES[node["dtype"]], device=device).set_(
            on_device[index, device], node["offset"], node["shape"], node["stride"]
        )
        return item.requires_grad_() if node["grad"] else item

    return _build(tree, tensor)


@dataclass(kw_only=True)
class Outgoing:
    """The worker's side of returning a value: describe it, learn its size, copy the bytes.

    `inputs` maps the identity of an input storage to its number, so that a returned input buffer is not copied.
    """

    inputs: Mapping[int, int]
    tree: Any = None
    nbytes: int = 0
    #: A part of it was lazy or not contiguous, and was computed or copied while it was described.
    put_off: bool = False
    _copies: list[tuple[int, torch.Tensor]] = field(default_factory=list)

    @classmethod
    def describe(cls, value: object, inputs: Mapping[int, int]) -> Outgoing:
        """Take a kernel's output apart. Values that cannot be sent become `opaque` nodes that name their type."""
        outgoing = cls(inputs=inputs)
        outgoing.tree = _describe(value, outgoing._tensor, lambda name: {"t": "opaque", "type": name[:200]})
        return outgoing

    def _tensor(self, item: torch.Tensor) -> dict[str, Any]:
        if item.layout is not torch.strided or item.dtype not in _NAMES:
            return {"t": "opaque", "type": f"tensor of layout {item.layout} and dtype {item.dtype}"}
        plain = item.detach()
        if type(item) not in (torch.Tensor, torch.nn.Parameter):
            # A subclass may compute on demand. Only plain bytes can be sent, so it must compute now.
            plain = torch.empty(item.shape, dtype=item.dtype, device=item.device).copy_(item)
            self.put_off = True
        self.put_off = self.put_off or plain.is_conj() or plain.is_neg()
        plain = plain.resolve_conj().resolve_neg()
        if not _has_bytes(plain):
            return {"t": "opaque", "type": "tensor without bytes in memory"}
        if not plain.numel() and not _is_shape(plain.shape):
            return {"t": "opaque", "type": "empty tensor with too large a size"}
        node: dict[str, Any] = {
            "t": "tensor",
            "dtype": _NAMES[plain.dtype],
            "shape": list(plain.shape),
            "device": str(plain.device),
        }
        region = self.inputs.get(identity(plain))
        if region is not None and plain.is_contiguous():
            node["at"] = [region, plain.storage_offset() * plain.element_size()]
            return node
        node["at"] = [OUTPUT_REGION, self.nbytes]
        self.put_off = self.put_off or not plain.is_contiguous()
        self._copies.append((self.nbytes, plain.contiguous()))
        nbytes = plain.numel() * plain.element_size()
        self.nbytes += aligned(nbytes)
        return node

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors to copy, contiguous, in the order of their offsets."""
        return [item for _, item in self._copies]

    @property
    def addresses(self) -> list[int]:
        """The address of each tensor to copy, in the order of their offsets."""
        return [item.data_ptr() for _, item in self._copies]

    def copy_to(self, arena: Arena) -> None:
        """Copy the described tensors into the judge's arena, which holds at least `nbytes`."""
        for offset, item in self._copies:
            if item.is_cpu and item.nbytes <= _SMALL_BYTES:
                # On this thread alone: torch would split the copy among its threads, and wait for all of them.
                if item.nbytes:
                    ctypes.memmove(arena.bytes_at(offset, item.nbytes).data_ptr(), item.data_ptr(), item.nbytes)
                continue
            flat = _bytes_of(item)
            arena.bytes_at(offset, flat.numel()).copy_(flat)


def _bytes_of(item: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor's own bytes as uint8, without the rest of its storage."""
    nbytes = item.numel() * item.element_size()
    whole = torch.empty(0, dtype=torch.uint8, device=item.device).set_(item.untyped_storage())
    start = item.storage_offset() * item.element_size()
    return whole[start : start + nbytes]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the outputs of a case have in common if nothing in them but tensors of the CPU can differ.

    Judge and worker both derive it from a description that has travelled in a message. Then an address for each tensor
    says all that is left to say of the next output.
    """

    #: Containers, dtypes and shapes, with the place of each tensor in a copy of the output.
    tree: Any
    #: Bytes of each tensor, in the order of the tree.
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, tree: Any) -> Self | None:
        """The layout of a trusted or checked tree; None if it has a number, a text, or a tensor of a device."""
        if not all(node["t"] in _BYTES_ALONE and node.get("device", "cpu") == "cpu" for node in _nodes(tree)):
            return None
        sizes = tuple(ITEM_BYTES[node["dtype"]] * math.prod(node["shape"]) for node in tensor_nodes(tree))
        offsets = accumulate(map(aligned, sizes), initial=0)

        def placed(node: Any) -> Any:
            kept = {key: node[key] for key in ("t", "dtype", "shape", "device")}
            return kept | {"at": [OUTPUT_REGION, next(offsets)]}

        return cls(tree=_with_tensors(tree, placed), sizes=sizes)


@dataclass(frozen=True, kw_only=True)
class Region:
    """The bytes of one tensor node, checked: `start` counts from the beginning of the arena."""

    inputs: bool
    start: int
    nbytes: int


class Snapshot:
    """The judge's own copy of a returned value. No part of it lies in shared memory."""

    def __init__(self, tree: object, copies: Sequence[torch.Tensor]) -> None:
        self._tree = tree
        self._copies = copies

    @property
    def signature(self) -> object:
        """Structure, dtypes and shapes, comparable with `signature()` of any value."""
        return _signature(self._tree)

    @property
    def opaque(self) -> str | None:
        """The type of the first returned object that cannot be sent, or None."""
        return next((node["type"] for node in _nodes(self._tree) if node["t"] == "opaque"), None)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each tensor."""
        return [copy.numel() for copy in self._copies]

    @property
    def layout(self) -> Layout | None:
        """What the next output has to say of itself; None: all."""
        return Layout.of(self._tree)

    @property
    def has_tensor(self) -> bool:
        """Whether anything returned is a tensor."""
        return any(True for _ in tensor_nodes(self._tree))

    def value(self) -> object:
        """The returned value, over the judge's own bytes."""
        copies = iter(self._copies)

        def tensor(node: Mapping[str, Any]) -> torch.Tensor:
            storage = next(copies).to(node["device"]).untyped_storage()
            item = torch.empty(0, dtype=DTYPES[node["dtype"]], device=node["device"])
            return item.set_(storage, 0, node["shape"])  # type: ignore[no-any-return, call-overload]  # stubs want strides

        return _build(self._tree, tensor)


def regions(tree: object, *, placed: Sequence[Placed], output_bytes: int) -> list[Region]:
    """Check a worker's description of its output and say where each tensor's bytes lie.

    Raises:
        WireViolation: anything in it that the worker's own code would not have written.
    """
    check_tree(tree)
    places = []
    for node in tensor_nodes(tree):
        nbytes = ITEM_BYTES[node["dtype"]] * math.prod(node["shape"])
        region, start = node["at"]
        if region == OUTPUT_REGION:
            available, base = output_bytes, 0
        elif 0 <= region < len(placed):
            available, base = placed[region].nbytes, placed[region].offset
        else:
            raise WireViolation(f"output tensor in region {region}, there are {len(placed)} inputs")
        if start < 0 or start + nbytes > available:
            raise WireViolation(f"output tensor at bytes {start} to {start + nbytes} of a region of {available}")
        places.append(Region(inputs=region != OUTPUT_REGION, start=base + start, nbytes=nbytes))
    return places


def check_tree(tree: object) -> None:
    """Check the shape of a tree that a worker sent."""
    for node in _nodes(tree, trusted=False):
        if node["t"] == "tensor":
            _check_tensor(node)


def _check_tensor(node: Mapping[str, Any]) -> None:
    shape, at, device = node.get("shape"), node.get("at"), node.get("device")
    if not isinstance(node.get("dtype"), str) or node["dtype"] not in DTYPES:
        raise WireViolation("output tensor of an unknown dtype")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not _is_shape(shape):
        raise WireViolation("output tensor with an impossible shape")
    if not isinstance(at, list) or len(at) != 2 or not all(type(number) is int for number in at):
        raise WireViolation("output tensor without a place")
    if not isinstance(device, str) or device not in _devices():
        raise WireViolation("output tensor on an unknown device")


def _devices() -> set[str]:
    return {"cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))}


def _device_values() -> set[str]:
    """The devices that may stand in a value."""
    return {"cuda", *_devices()}


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 48


def _is_shape(sizes: Sequence[Any]) -> bool:
    """Whether torch can count with a shape. Strides of empty tensors must fit, too."""
    return all(map(_is_size, sizes)) and math.prod(max(size, 1) for size in sizes) < _MAX_ELEMENTS


def tensor_nodes(tree: object) -> Iterator[dict[str, Any]]:
    """The tensor descriptors of a trusted or checked tree, in order."""
    return (node for node in _nodes(tree) if node["t"] == "tensor")


def signature(value: object) -> object:
    """Structure, dtypes and shapes of a value, without its contents; anything strange is named by its type."""

    def tensor(item: torch.Tensor) -> dict[str, Any]:
        return {"t": "tensor", "dtype": str(item.dtype).removeprefix("torch."), "shape": list(item.shape)}

    return _signature(_describe(value, tensor, lambda name: {"t": "opaque", "type": name}))


def _signature(tree: Any) -> object:
    if tree["t"] == "tensor":
        return ("tensor", tree["dtype"], tuple(tree["shape"]))
    if tree["t"] in ("tuple", "list"):
        return (tree["t"], tuple(_signature(item) for item in tree["items"]))
    if tree["t"] in _PAIRS:
        return (tree["t"], tuple((key, _signature(item)) for key, item in tree["items"]))
    return (tree["t"],)


def tensors_in(value: object) -> tuple[int, int]:
    """How many tensors a value has, and their bytes; none where it is of a kind that cannot travel."""

    def describe(tensor: torch.Tensor) -> dict[str, Any]:
        return {"t": "tensor", "bytes": tensor.numel() * tensor.element_size()}

    nodes = list(tensor_nodes(_describe(value, describe, lambda _: {"t": "none"})))
    return len(nodes), sum(node["bytes"] for node in nodes)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of an argument, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in tensors_of(item)] if isinstance(value, (tuple, list)) else []


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of the argument with each tensor changed. Tensors that are there twice stay one."""
    tensors = {id(tensor): tensor for tensor in tensors_of(value)}
    return deepcopy(value, {key: change(tensor) for key, tensor in tensors.items()})


def tree_signature(packed: Packed) -> object:
    """Structure, dtypes and shapes of a packed input."""
    return _signature(packed.tree)


def _no_record(_: object) -> None:
    """Outputs hold no records: the judge has no meaning for them."""


def _describe(  # noqa: C901, PLR0911 one branch per kind of value
    value: object,
    tensor: Callable[[torch.Tensor], dict[str, Any]],
    other: Callable[[str], Any],
    record: Callable[[object], Mapping[str, object] | None] = _no_record,
    depth: int = 0,
) -> Any:
    if depth > MAX_DEPTH:
        return other(f"value nested more than {MAX_DEPTH} deep")
    if isinstance(value, torch.Tensor):
        # A nested one has no shape, though its layout may be the usual one.
        return other("nested tensor") if value.is_nested else tensor(value)
    kind = type(value)
    fields = value if isinstance(value, dict) else record(value)
    if fields is not None:
        if not all(type(key) is str for key in fields):
            return other("dict with keys that are not text")
        pairs = [[key, _describe(item, tensor, other, record, depth + 1)] for key, item in fields.items()]
        return {"t": "dict" if fields is value else "named" if isinstance(value, tuple) else "record", "items": pairs}
    if isinstance(value, tuple | list):
        items = [_describe(item, tensor, other, record, depth + 1) for item in value]
        # One may hold anything that fits into an integer of the machine.
        is_size = kind is torch.Size and all(map(_is_size, value))
        return {"t": "list" if isinstance(value, list) else "size" if is_size else "tuple", "items": items}
    if value is None:
        return {"t": "none"}
    if isinstance(value, np.generic) and kind is not type(value.item()):
        return _describe(value.item(), tensor, other, record, depth)
    if kind is bool or kind is str:
        return {"t": kind.__name__, "v": value}
    if kind is int:
        return {"t": "int", "v": value} if -(1 << 127) < value < 1 << 127 else other("very large int")  # type: ignore[operator]  # an int
    if kind is float:
        return {"t": "float", "v": value.hex()}  # type: ignore[attr-defined]  # a float
    if kind is torch.dtype and value in _NAMES:
        return {"t": "dtype", "v": _NAMES[value]}  # type: ignore[index]  # a dtype
    if kind is torch.device:
        return {"t": "device", "v": str(value)} if str(value) in _device_values() else other("device that is not here")
    return other(kind.__name__)


@cache
def _tuple_of(names: tuple[str, ...]) -> Callable[..., tuple[object, ...]]:
    """A class of tuples with names. Kept, as a new one takes as long as many a kernel."""
    return namedtuple("Named", names)  # noqa: PYI024 the names come from the task


def _build(tree: Any, tensor: Callable[[Mapping[str, Any]], torch.Tensor]) -> object:  # noqa: C901, PLR0911 same
    match tree["t"]:
        case "tensor":
            return tensor(tree)
        case "tuple":
            return tuple(_build(item, tensor) for item in tree["items"])
        case "list":
            return [_build(item, tensor) for item in tree["items"]]
        case "size":
            return torch.Size([_build(item, tensor) for item in tree["items"]])  # type: ignore[misc]  # ints by construction
        case "dict":
            return {key: _build(item, tensor) for key, item in tree["items"]}
        case "record":
            return SimpleNamespace(**{key: _build(item, tensor) for key, item in tree["items"]})
        case "named":
            names, items = zip(*tree["items"], strict=True)
            return _tuple_of(names)(*(_build(item, tensor) for item in items))
        case "none":
            return None
        case "float":
            return float.fromhex(tree["v"])
        case "dtype":
            return DTYPES[tree["v"]]
        case "device":
            return torch.device(tree["v"])
        case _:
            return tree["v"]


def _nodes(tree: object, *, trusted: bool = True) -> Iterator[dict[str, Any]]:
    """Every node of a tree, parents first. Nodes of an untrusted tree are checked before."""
    stack: list[tuple[Any, int]] = [(tree, 0)]
    count = 0
    while stack:
        node, depth = stack.pop()
        if not trusted:
            count += 1
            if count > MAX_NODES or depth > MAX_DEPTH + 1:
                raise WireViolation("output with too many parts")
            _check_node(node)
        yield node
        if node["t"] in ("tuple", "list", "size"):
            stack.extend((item, depth + 1) for item in reversed(node["items"]))
        elif node["t"] in _PAIRS:
            stack.extend((item, depth + 1) for _, item in reversed(node["items"]))


def _check_node(node: object) -> None:
    if not isinstance(node, dict):
        raise WireViolation("output part is not an object")
    kind = node.get("t")
    sound = _SOUND.get(kind) if isinstance(kind, str) else None
    if sound is None or not sound(node):
        raise WireViolation("output part of an unknown kind")


def _is_hex_float(value: object) -> bool:
    if not isinstance(value, str) or len(value) > 64:
        return False
    try:
        float.fromhex(value)
    except (ValueError, OverflowError):
        return False
    return True


def _is_size_node(item: object) -> bool:
    return isinstance(item, dict) and item.get("t") == "int" and _is_size(item.get("v"))


def _are_pairs(items: Sequence[object]) -> bool:
    """Whether each has a text and a value, and each text is there once."""
    keys = [item[0] for item in items if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)]
    return len(keys) == len(items) == len(set(keys))


#: Kind of a node -> the check that it is well formed.
_SOUND: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "tensor": lambda _: True,
    "none": lambda _: True,
    "opaque": lambda node: isinstance(node.get("type"), str) and len(node["type"]) <= MAX_TEXT,
    "bool": lambda node: isinstance(node.get("v"), bool),
    "int": lambda node: type(node.get("v")) is int,
    "str": lambda node: isinstance(node.get("v"), str) and len(node["v"]) <= MAX_TEXT,
    "float": lambda node: _is_hex_float(node.get("v")),
    "dtype": lambda node: isinstance(node.get("v"), str) and node["v"] in DTYPES,
    "device": lambda node: isinstance(node.get("v"), str) and node["v"] in _device_values(),
    "tuple": lambda node: isinstance(node.get("items"), list),
    "list": lambda node: isinstance(node.get("items"), list),
    "size": lambda node: isinstance(node.get("items"), list) and all(_is_size_node(item) for item in node["items"]),
    "dict": lambda node: isinstance(node.get("items"), list) and _are_pairs(node["items"]),
}
