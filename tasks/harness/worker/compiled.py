"""Compiled submissions (`lang: cu`): nvcc makes a library of the sources and the submission, and the worker calls it.

Owns the layout of the call (`include/kernel_runner.h`) and, where nothing was built ahead, the compiler's run. The
library runs in the worker like any other submission: it decides nothing, its times are claims, the judge reads its
outputs.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

#: What the library exports.
ENTRY = "custom_kernel"
#: Characters of each of the compiler's streams that are kept.
MAX_SAID = 6_000

#: enum kr_dtype; everything else is KR_OTHER.
_DTYPES: Mapping[torch.dtype, int] = {
    torch.bool: 0,
    torch.uint8: 1,
    torch.int8: 2,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.float16: 6,
    torch.bfloat16: 7,
    torch.float32: 8,
    torch.float64: 9,
}
_OTHER = 10
_TENSOR = 0
_INTEGER = 1
_REAL = 2
_NOTHING = 3


class Tensor(ctypes.Structure):
    """kr_tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("item_bytes", ctypes.c_int64),
    )


class Value(ctypes.Structure):
    """kr_value."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("tensor", Tensor),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
    )


class CompileFailed(Exception):
    """The compiler refused the sources; `said` is what it wrote."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


class KernelFailed(Exception):
    """The library cannot be used, or its function returned an error message."""


@dataclass(frozen=True)
class Arguments:
    """A case's inputs as the library takes them, made before the timed call."""

    values: Any
    count: int
    #: The value that the call returns: the last element of the inputs.
    output: object
    #: Keeps the memory alive that `values` points to.
    kept: tuple[object, ...]


def flatten(data: object) -> Arguments:
    """Lay out a case's inputs.

    Raises:
        TypeError: something in them is no tensor, number, None, or tuple, list or dict of such.
    """
    leaves: list[object] = []
    _gather(data, leaves)
    values = (Value * max(1, len(leaves)))()
    kept: list[object] = [data]
    for place, leaf in zip(values, leaves, strict=False):
        _fill(place, leaf, kept)
    output = data[-1] if isinstance(data, (tuple, list)) and data else data
    return Arguments(values=values, count=len(leaves), output=output, kept=tuple(kept))


def _gather(data: object, leaves: list[object]) -> None:
    if isinstance(data, (tuple, list)):
        for item in data:
            _gather(item, leaves)
    elif isinstance(data, dict):
        for item in data.values():
            _gather(item, leaves)
    else:
        leaves.append(data)


def _fill(place: Any, leaf: object, kept: list[object]) -> None:
    if isinstance(leaf, torch.Tensor):
        shape = (ctypes.c_int64 * max(1, leaf.dim()))(*leaf.shape)
        strides = (ctypes.c_int64 * max(1, leaf.dim()))(*leaf.stride())
        kept += [shape, strides]
        place.kind = _TENSOR
        place.tensor.data = leaf.data_ptr()
        place.tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        place.tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        place.tensor.dimensions = leaf.dim()
        place.tensor.dtype = _DTYPES.get(leaf.dtype, _OTHER)
        place.tensor.item_bytes = leaf.element_size()
    elif isinstance(leaf, (bool, int)):
        place.kind, place.integer = _INTEGER, int(leaf)
    elif isinstance(leaf, float):
        place.kind, place.real = _REAL, leaf
    elif leaf is None:
        place.kind = _NOTHING
    else:
        raise TypeError(
            f"the task's inputs hold a {type(leaf).__name__}; compiled submissions take tensors, numbers and None, in "
            "tuples, lists and dicts"
        )


def load_library(path: Path) -> Callable[[Arguments], object]:
    """The submission's function. It takes the result of `flatten`.

    Raises:
        KernelFailed: the library cannot be loaded, or exports no such function.
    """
    try:
        library = ctypes.CDLL(str(path))
        function = getattr(library, ENTRY)
    except (OSError, AttributeError) as error:
        raise KernelFailed(f"the compiled submission has no function {ENTRY} with C linkage: {error}") from error
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_int32]

    def call(arguments: Arguments) -> object:
        message = function(arguments.values, arguments.count)
        if message is not None:
            raise KernelFailed(message.decode("utf-8", errors="replace"))
        return arguments.output

    return call


def compile_sources(argv: Sequence[str], directory: Path) -> str:
    """Run the compiler in a folder with the sources; its output.

    Its time is part of loading, which the judge limits.

    Raises:
        CompileFailed: it ended with anything but 0.
    """
    done = subprocess.run(argv, cwd=directory, capture_output=True, encoding="utf-8", errors="replace", check=False)
    output = done.stdout[-MAX_SAID:] + done.stderr[-MAX_SAID:]
    if done.returncode != 0:
        raise CompileFailed(f"{argv[0]} failed: {first_error(done.stderr)}", output)
    return output


def first_error(stderr: str) -> str:
    """The compiler's first error, as a line."""
    first = next((line for line in stderr.splitlines() if "error" in line), None)
    return (first or "it said nothing about an error").strip()[:500]
