"""Installs the emulation in torch, once per process and for good. Everything that is replaced is listed here.

Torch must have been imported.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.profiler_util
import torch.profiler

from .device import (
    CAPABILITY,
    DEFAULT_STREAM,
    NAME,
    Event,
    Generator,
    Properties,
    Stream,
    memory_in_use,
    sleep_cycles,
)
from .errors import needs_device
from .mode import CPU, CUDA, EmulatedCuda, mark, on_cuda


def install(memory_bytes: int) -> None:
    """Emulate one CUDA device with so much memory in this process; a second call does nothing."""
    # On torch itself, because this package may be here under two names (see its own docstring).
    if hasattr(torch, "kernel_runner_emulates_cuda"):
        return
    torch.kernel_runner_emulates_cuda = True  # type: ignore[attr-defined]  # ours
    mode = EmulatedCuda(memory_bytes)
    _patch_cuda(memory_bytes)
    _patch_accelerator()
    _patch_torch(mode)
    _patch_profiler()
    _enter_in_threads(mode)
    _enter_in_backward(mode)
    mode.__enter__()  # type: ignore[no-untyped-call]  # torch lacks it


def _nothing() -> Callable[..., None]:
    """A function that does nothing. Every name gets one of its own.

    (torch keeps a table of its functions, and two names for one would clash there.)
    """
    return lambda *_, **__: None


def _answer(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _refuse(what: str) -> Callable[..., object]:
    def refuse(*_: object, **__: object) -> object:
        raise needs_device(what)

    return refuse


def _patch_cuda(memory_bytes: int) -> None:
    cuda: Any = torch.cuda
    properties = Properties(total_memory=memory_bytes)
    answers: dict[str, object] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": NAME,
        "get_device_properties": properties,
        "get_device_capability": CAPABILITY,
        "get_arch_list": [],
        "is_bf16_supported": True,
        "is_tf32_supported": False,
        "is_current_stream_capturing": False,
        "can_device_access_peer": False,
    }
    for name, value in answers.items():
        setattr(cuda, name, _answer(value))
    for name in (
        *("init", "set_device", "set_stream", "synchronize", "empty_cache", "ipc_collect"),
        *("reset_peak_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated"),
        *("reset_max_memory_cached", "set_per_process_memory_fraction"),
    ):
        setattr(cuda, name, _nothing())
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_, **__: memory_in_use())
    for name in ("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle"):
        setattr(cuda, name, _refuse(f"torch.cuda.{name}"))
    cuda.mem_get_info = lambda *_, **__: (max(0, memory_bytes - memory_in_use()), memory_bytes)
    cuda.Event, cuda.Stream = Event, Stream
    cuda.stream = contextlib.nullcontext
    cuda.device = cuda.device_of = lambda _: contextlib.nullcontext()
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, lambda *_, **__: DEFAULT_STREAM)
    # One stream of numbers for both sides: what `torch.manual_seed` sets, they set as well.
    for name in ("manual_seed", "manual_seed_all"):
        setattr(cuda, name, lambda seed: _discard(torch.default_generator.manual_seed(int(seed))))
    for name in ("seed", "seed_all"):
        setattr(cuda, name, lambda: _discard(torch.default_generator.seed()))
    cuda.initial_seed = torch.default_generator.initial_seed
    cuda.get_rng_state = lambda *_, **__: torch.default_generator.get_state()
    cuda.set_rng_state = lambda new_state, *_, **__: _discard(torch.default_generator.set_state(new_state))
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(cuda.nvtx, name, _answer(0))
    cuda._sleep = sleep_cycles  # noqa: SLF001 torch's only kernel of a known length
    cuda.nvtx.range = lambda *_, **__: contextlib.nullcontext()
    # Functions that are not emulated ask for the driver first.
    cuda._lazy_init = _refuse("this function of torch.cuda")  # noqa: SLF001 its callers have no other door


def _discard(_: object) -> None:
    """Answer nothing, as torch's own functions of these names do."""


def _patch_accelerator() -> None:
    accelerator: Any = torch.accelerator
    answers = {"is_available": True, "device_count": 1, "current_accelerator": CUDA, "current_device_index": 0}
    for name, value in answers.items():
        setattr(accelerator, name, _answer(value))
    for name in ("synchronize", "set_device_index", "set_stream"):
        setattr(accelerator, name, _nothing())
    accelerator.current_stream = lambda *_, **__: DEFAULT_STREAM


def _patch_torch(mode: EmulatedCuda) -> None:
    patched: Any = torch

    def set_default_device(device: object) -> None:
        mode.default = CUDA if mode.place(device) else CPU

    patched.Generator = Generator
    patched.set_default_device = set_default_device
    patched.get_default_device = lambda: mode.default
    # Compiled code would be code for the CPU, after minutes. The function computes the same.
    patched.compile = lambda model=None, **_: model if model is not None else lambda function: function
    # Else recurrent layers warn that torch was built without it.
    patched.backends.cudnn.is_acceptable = _answer(False)
    for kind in (torch.nn.Parameter, torch.nn.Buffer):
        _mark_made(kind)
    _as_cpu(torch.autocast)


def _mark_made(kind: Any) -> None:
    """Parameters are made where no mode sees it."""
    original = kind.__new__

    @functools.wraps(original)
    def make(cls: Any, data: torch.Tensor | None = None, *args: object, **kwargs: object) -> object:
        tensor = original(cls, data, *args, **kwargs)
        if data is not None and on_cuda(data):
            mark(tensor, cuda=True)
        return tensor

    kind.__new__ = staticmethod(make)


def _as_cpu(autocast: Any) -> None:
    """Autocasting for the device is the CPU's, with the device's default type."""
    original = autocast.__init__

    @functools.wraps(original)
    def begin(self: object, device_type: str, dtype: torch.dtype | None = None, **options: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(self, device_type, dtype, **options)

    autocast.__init__ = begin


def _patch_profiler() -> None:
    """Profiles show what the processor did."""
    profile: Any = torch.profiler.profile
    events: Any = torch.autograd.profiler_util.EventList
    begin, table = profile.__init__, events.table

    @functools.wraps(begin)
    def begin_on_cpu(self: object, **options: object) -> None:
        begin(self, **options | {"activities": [torch.profiler.ProfilerActivity.CPU]})

    @functools.wraps(table)
    def table_of_cpu(self: object, sort_by: str | None = None, *args: object, **options: object) -> object:
        if sort_by is not None:
            sort_by = sort_by.replace("cuda_", "cpu_").replace("device_", "cpu_")
        return table(self, sort_by, *args, **options)

    profile.__init__, events.table = begin_on_cpu, table_of_cpu


def _enter_in_threads(mode: EmulatedCuda) -> None:
    """Modes belong to a thread, so every later thread enters the mode first."""
    start = threading.Thread.start

    @functools.wraps(start)
    def start_inside(self: threading.Thread) -> None:
        run = self.run

        def run_inside() -> None:
            with mode:
                run()

        self.run = run_inside  # type: ignore[method-assign]  # of this one thread
        start(self)

    threading.Thread.start = start_inside  # type: ignore[method-assign]  # for all threads to come


def _enter_in_backward(mode: EmulatedCuda) -> None:
    """Torch leaves all modes while it computes gradients. A program's own backward functions need the mode, too."""
    node: Any = torch.autograd.function.BackwardCFunction
    apply = node.apply

    @functools.wraps(apply)
    def apply_inside(self: object, *gradients: object) -> object:
        with mode:
            return apply(self, *gradients)

    node.apply = apply_inside
