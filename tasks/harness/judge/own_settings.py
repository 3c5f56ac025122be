"""Settings of the process that code of a task or a reference changes, kept apart from the judge's own.

Such code runs in the judge's process. What it sets there (a default device, a default dtype, warnings as errors) is a
part of what it computes, and must be there at its next call. The judge's own arithmetic must not see it. So the two
change places around every such call.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .author_code import running

#: Smaller than every normal number of float64.
_DENORMAL = 5e-324


def _modes(kind: str) -> tuple[Any, ...]:
    count = getattr(torch._C, f"_len_torch_{kind}_stack")()  # noqa: SLF001 torch has no public name for it
    return tuple(getattr(torch._C, f"_get_{kind}_stack_at")(index) for index in range(count))  # noqa: SLF001 same


def _set_modes(kind: str, modes: tuple[Any, ...]) -> None:
    for _ in _modes(kind):
        getattr(torch._C, f"_pop_torch_{kind}_stack")()  # noqa: SLF001 see above
    for mode in modes:
        getattr(torch._C, f"_push_on_torch_{kind}_stack")(mode)  # noqa: SLF001 see above


def _set_tensor_device(device: torch.device) -> None:
    kind = torch.FloatTensor if device.type == "cpu" else f"torch.{device.type}.FloatTensor"
    torch._C._set_default_tensor_type(kind)  # noqa: SLF001 see above


def _filters() -> tuple[Any, ...]:
    return (tuple(warnings.filters), warnings.showwarning)


def _set_filters(values: tuple[Any, ...]) -> None:
    warnings.filters[:], warnings.showwarning = values  # type: ignore[index]  # a list
    warnings._filters_mutated()  # type: ignore[attr-defined]  # noqa: SLF001 as warnings.catch_warnings does


def _numpy_errors() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.geterr()


def _set_numpy_errors(values: Any) -> None:
    if values is not None:
        sys.modules["numpy"].seterr(**values)


def _directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 asked at every call, and a path takes ten times as long
    except OSError:
        # It has been removed.
        return None


def _set_streams(streams: tuple[Any, Any]) -> None:
    sys.stdout, sys.stderr = streams


def _keep_streams_open() -> None:
    """Put nothing where standard streams have been closed: what is opened next would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


#: Name -> how to read it, how to set it. In the order in which they are set.
_SETTINGS: Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "function modes": (lambda: _modes("function"), lambda modes: _set_modes("function", modes)),
    "dispatch modes": (lambda: _modes("dispatch"), lambda modes: _set_modes("dispatch", modes)),
    # The mode that it stands for is among the function modes.
    "default device": (
        lambda: getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None),  # noqa: SLF001 see above
        lambda context: setattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", context),  # noqa: SLF001 see above
    ),
    "default tensor type": (torch._C._get_default_device, lambda name: _set_tensor_device(torch.device(name))),  # noqa: SLF001 see above
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "gradients": (torch.is_grad_enabled, torch._C._set_grad_enabled),  # noqa: SLF001 without a check of its arguments
    "anomalies": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda values: torch.set_anomaly_enabled(*values),
    ),
    "autocast": (
        lambda: tuple(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")),
        lambda values: [torch.set_autocast_enabled(*pair) for pair in zip(("cpu", "cuda"), values, strict=True)],
    ),
    "denormal numbers": (lambda: _DENORMAL * 1.0 == 0.0, torch.set_flush_denormal),
    "print options": (
        lambda: dict(vars(torch._tensor_str.PRINT_OPTS)),  # noqa: SLF001 torch has a setter alone
        lambda options: vars(torch._tensor_str.PRINT_OPTS).update(options),  # noqa: SLF001 see above
    ),
    "warnings of torch": (torch.is_warn_always_enabled, torch.set_warn_always),
    "warnings": (_filters, _set_filters),
    "errors of numpy": (_numpy_errors, _set_numpy_errors),
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "digits of integers": (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    "time limit of sockets": (socket.getdefaulttimeout, socket.setdefaulttimeout),
    "directory": (_directory, lambda path: None if path is None else os.chdir(path)),
    "streams": (lambda: (sys.stdout, sys.stderr), _set_streams),
}


class OwnSettings:
    """The settings of code that is not the judge's. They begin as the judge's are."""

    def __init__(self) -> None:
        self._theirs: dict[str, Any] = {}

    @contextlib.contextmanager
    def installed(self, call: str) -> Iterator[None]:
        """Inside: their settings; what the code in the block sets is kept. Afterwards: the settings as before.

        `call`: names that code, should it end the process.
        """
        before = _read()
        _apply(self._theirs, before)
        try:
            with running(call):
                yield
        finally:
            _keep_streams_open()
            now = _read()
            self._theirs = {name: value for name, value in now.items() if not _same(value, before[name])}
            if self._theirs:
                _apply(before, now)


def _read() -> dict[str, Any]:
    return {name: read() for name, (read, _) in _SETTINGS.items()}


def _apply(settings: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Set them. Those that are not named stay as they are `now`."""
    for name, (_, change) in _SETTINGS.items():
        if name in settings and not _same(settings[name], now[name]):
            change(settings[name])


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))
