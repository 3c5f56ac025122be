"""Tensors that report a CUDA device: which ones do, and what follows for the calls with them.

Every call of torch passes through `EmulatedCuda`. A device in the arguments is replaced by the CPU, and the result is
marked with the named device. Without a named device, a result is where its operands are. The marks are attributes of
the tensor objects. Tensors that torch creates out of sight (from numpy, in a backward pass) have no mark. They count as
the host's, and no check refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from .errors import EmulationError

CPU: Final = torch.device("cpu")
CUDA: Final = torch.device("cuda", 0)

_MARK: Final = "_kr_on_cuda"
#: Names of functions that make tensors without operands, where the default device counts.
_FACTORIES: Final = frozenset(function.__name__ for function in _device_constructors())
#: Factories whose arguments give the size of the result.
_SIZED: Final = frozenset({"empty", "empty_strided", "zeros", "ones", "full"})
#: Functions that share the memory of their argument. A device would have a copy of its own.
_SHARING: Final = frozenset({"as_tensor", "asarray"})
#: Attributes that depend on a tensor's device.
_PROPERTIES: Final[Mapping[str, Callable[[bool], object]]] = {
    "device": lambda cuda: CUDA if cuda else CPU,
    "is_cuda": lambda cuda: cuda,
    "is_cpu": lambda cuda: not cuda,
}
#: Take operands on two devices: those that copy or only look at shapes, indices, and lengths that are always the
#: host's. All other functions refuse them, as on a device. Scalars (tensors without dimensions) may be the host's.
_MIXING: Final = frozenset(
    (
        *("copy_", "set_", "resize_as_", "__getitem__", "__setitem__", "index", "index_put", "index_put_"),
        *("expand_as", "view_as", "reshape_as", "broadcast_tensors", "is_same_size", "result_type", "can_cast"),
        *("atleast_1d", "atleast_2d", "atleast_3d", "backward", "_has_compatible_shallow_copy_type", "tensor_split"),
        *("lstm", "gru", "rnn_tanh", "rnn_relu", "_pack_padded_sequence", "ctc_loss", "sparse_coo_tensor"),
    )
)
#: Functions of torch that take devices and make no tensors. They are not changed. `_parse_to` reads the arguments of
#: Module.to.
_PLAIN: Final = frozenset({"device", "Generator", "_parse_to"})


def on_cuda(tensor: torch.Tensor) -> bool:
    """Whether a tensor is marked as on the device."""
    return getattr(tensor, _MARK, None) is True


def mark(tensor: torch.Tensor, *, cuda: bool) -> None:
    """Mark where a tensor is."""
    setattr(tensor, _MARK, cuda)


class EmulatedCuda(TorchFunctionMode):
    """Emulates one CUDA device for torch. One instance serves all threads, and each thread enters it."""

    def __init__(self, memory_bytes: int) -> None:
        super().__init__()
        self.memory_bytes = memory_bytes
        #: What `torch.set_default_device` named.
        self.default = CPU

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """One call of torch."""
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if name in _PLAIN:
            return func(*args, **kwargs)
        if name in ("__get__", "__set__"):
            return self._property(func, name, args)
        special = _METHODS.get(name)
        if special is not None and args and isinstance(args[0], torch.Tensor):
            return special(self, func, args, kwargs)
        return self._call(func, name, args, kwargs)

    # -- places --------------------------------------------------------------------------------------------------

    def place(self, device: object) -> bool | None:
        """Whether a named device is the emulated one; None if no device is named.

        Raises:
            EmulationError: there is no such device.
        """
        if device is None:
            return None
        if isinstance(device, int) and not isinstance(device, bool):
            device = torch.device("cuda", device)
        found = device if isinstance(device, torch.device) else torch.device(str(device))
        if found.type != "cuda":
            return False
        if found.index not in (None, 0):
            raise EmulationError(f"device {found} does not exist, found cuda:0 (one CUDA device is emulated)")
        return True

    def _property(self, func: Callable[..., Any], access: str, args: Sequence[Any]) -> Any:
        """A tensor's attribute."""
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        tensor = args[0]
        if access == "__get__":
            if name in _PROPERTIES and self._is_here(tensor):
                return _PROPERTIES[name](on_cuda(tensor))
            found = func(*args)
            # Parts of a tensor are on its device: gradient, data, transpose.
            if isinstance(found, torch.Tensor) and found is not tensor and hasattr(tensor, _MARK):
                mark(found, cuda=on_cuda(tensor))
            return found
        if name == "data" and isinstance(args[1], torch.Tensor) and hasattr(args[1], _MARK):
            mark(tensor, cuda=on_cuda(args[1]))
        return func(*args)

    @staticmethod
    def _is_here(tensor: torch.Tensor) -> bool:
        """Whether a tensor has memory at all; `meta` tensors have none."""
        return on_cuda(tensor) or not tensor.is_meta

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, func: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given = list(_tensors((*args, *kwargs.values())))
        wanted = self.place(kwargs.get("device"))
        if wanted is None:
            wanted = next((self.place(arg) for arg in args if isinstance(arg, torch.device)), None)
        if wanted is None and name in _FACTORIES and name not in _SHARING:
            wanted = self.place(self.default)
        here = wanted if wanted is not None else _whereabouts(given)
        if not _may_mix(func, name):
            _refuse_two_places(name, given)
        kwargs = self._without_cuda(kwargs, here=bool(here))
        args = [CPU if isinstance(arg, torch.device) and arg.type == "cuda" else arg for arg in args]
        if wanted and name in _SIZED:
            # Checked before: the host may have so much memory, although the emulated device does not.
            nbytes = func(*args, **kwargs | {"device": "meta"}).nbytes
            if nbytes > self.memory_bytes:
                raise self._too_large(nbytes)
        result = func(*args, **kwargs)
        if name in _SHARING and wanted is not None and (wanted or any(map(on_cuda, given))):
            result = result.clone()
        if here is not None or name in _FACTORIES:
            known = {id(tensor) for tensor in given}
            for tensor in _tensors((result,)):
                if id(tensor) not in known:
                    mark(tensor, cuda=bool(here))
        return result

    def _without_cuda(self, kwargs: Mapping[str, Any], *, here: bool) -> dict[str, Any]:
        """Keyword arguments as the CPU understands them."""
        changed = dict(kwargs)
        if self.place(changed.get("device")):
            changed["device"] = CPU
        # Pages can only be pinned for a real device.
        if changed.get("pin_memory"):
            changed["pin_memory"] = False
        generator = changed.get("generator")
        if generator is not None and (generator.device.type == "cuda") != here:
            expected, other = ("cuda", "cpu") if here else ("cpu", "cuda")
            raise RuntimeError(f"Expected a '{expected}' device type for generator but found '{other}'")
        return changed

    def _too_large(self, nbytes: int) -> torch.OutOfMemoryError:
        return torch.OutOfMemoryError(
            f"a tensor of {nbytes} bytes was asked for; the emulated CUDA device has {self.memory_bytes} bytes "
            "(half of the container's memory)"
        )

    # -- methods of tensors that move them -------------------------------------------------------------------------

    def move(self, tensor: torch.Tensor, *, cuda: bool, **options: Any) -> torch.Tensor:
        """A tensor on the device or the host: a copy, unless it is there already."""
        if on_cuda(tensor) != cuda:
            options["copy"] = True
        moved = tensor.to(CPU, **options)
        if moved is not tensor:
            mark(moved, cuda=cuda)
        return moved

    def to(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Tensor.to in all its forms; type_as is the one that takes another tensor."""
        tensor, *rest = args
        options = dict(kwargs)
        target = options.pop("device", None)
        other = options.pop("other", None)
        if rest and isinstance(rest[0], torch.Tensor):
            other = rest.pop(0)
        if other is not None:
            return self.move(tensor, cuda=on_cuda(other), dtype=other.dtype, **_named(rest, _AFTER_OTHER), **options)
        if rest and (isinstance(rest[0], str | torch.device) or type(rest[0]) is int):
            target = rest.pop(0)
            options |= _named(rest, _AFTER_DEVICE)
        elif rest and rest[0] is None:
            rest.pop(0)
            options |= _named(rest, _AFTER_DEVICE)
        else:
            options |= _named(rest, _AFTER_DTYPE)
        wanted = self.place(target)
        if target is not None and not wanted and torch.device(target).type != "cpu":
            return func(tensor, target, **options)
        return self.move(tensor, cuda=on_cuda(tensor) if wanted is None else wanted, **options)

    def cuda(self, _: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Tensor.cuda."""
        self.place(kwargs.get("device", args[1] if len(args) > 1 else None))
        memory_format = kwargs.get("memory_format", torch.preserve_format)
        return self.move(args[0], cuda=True, memory_format=memory_format)

    def cpu(self, _: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Tensor.cpu."""
        return self.move(args[0], cuda=False, memory_format=kwargs.get("memory_format", torch.preserve_format))

    def type(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Tensor.type, whose names of types may be a device's."""
        tensor = args[0]
        wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
        if wanted is None:
            name: str = func(tensor)
            return name.replace("torch.", "torch.cuda.", 1) if on_cuda(tensor) else name
        cuda = on_cuda(tensor)
        if isinstance(wanted, str):
            cuda = wanted.startswith("torch.cuda.")
            wanted = wanted.replace("torch.cuda.", "torch.", 1)
        changed: torch.Tensor = func(tensor, wanted)
        if changed is tensor:
            return self.move(tensor, cuda=cuda)
        mark(changed, cuda=cuda)
        return changed

    def stay(self, _: Callable[..., Any], args: Sequence[Any], __: Mapping[str, Any]) -> Any:
        """Tensor.pin_memory: pages can only be pinned for a real device."""
        return args[0]

    def nothing(self, _: Callable[..., Any], __: Sequence[Any], ___: Mapping[str, Any]) -> None:
        """Tensor.record_stream: all work has ended."""

    def packed(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Of a packed sequence the sizes of its batches are the host's."""
        data, sizes = self._call(func, func.__name__, args, kwargs)
        mark(sizes, cuda=False)
        return data, sizes

    def get_device(self, _: Callable[..., Any], args: Sequence[Any], __: Mapping[str, Any]) -> int:
        """Tensor.get_device."""
        return 0 if on_cuda(args[0]) else -1

    def host_only(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Tensor.numpy and similar methods, which fail for tensors on a device."""
        if on_cuda(args[0]) and not kwargs.get("force"):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
                "first."
            )
        return func(*args, **kwargs)


_AFTER_DEVICE: Final = ("dtype", "non_blocking", "copy")
_AFTER_DTYPE: Final = ("dtype", "non_blocking", "copy")
_AFTER_OTHER: Final = ("non_blocking", "copy")

_METHODS: Final[Mapping[str, Callable[[EmulatedCuda, Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]]] = {
    "to": EmulatedCuda.to,
    "type_as": EmulatedCuda.to,
    "cuda": EmulatedCuda.cuda,
    "cpu": EmulatedCuda.cpu,
    "type": EmulatedCuda.type,
    "pin_memory": EmulatedCuda.stay,
    "record_stream": EmulatedCuda.nothing,
    "_pack_padded_sequence": EmulatedCuda.packed,
    "get_device": EmulatedCuda.get_device,
    "numpy": EmulatedCuda.host_only,
    "__array__": EmulatedCuda.host_only,
}


def _named(values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    return dict(zip(names, values, strict=False))


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The tensors among arguments or results, lists and tuples of them included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _whereabouts(given: Sequence[torch.Tensor]) -> bool | None:
    """Where the result of an operation on these is; None if it is not known."""
    marks = [getattr(tensor, _MARK, None) for tensor in given]
    return True if True in marks else False if False in marks else None


def _may_mix(func: Callable[..., Any], name: str) -> bool:
    """Whether a function takes operands on two devices. An operator that is not torch's own decides for itself."""
    if isinstance(func, OpOverload | OpOverloadPacket) and not str(func).startswith("aten."):
        return True
    # Overloads of torch's own operators are named after them: copy_.default.
    return name.partition(".")[0] in _MIXING


def _refuse_two_places(name: str, given: Sequence[torch.Tensor]) -> None:
    places = {getattr(tensor, _MARK) for tensor in given if hasattr(tensor, _MARK) and tensor.dim()}
    if len(places) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"(in {name}; the device is emulated)"
        )
