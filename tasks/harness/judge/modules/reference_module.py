"""The reference of a group, run in the judge's process: a file of KernelBench's or KernelBook's form.

Owns the reference's namespace, which no candidate shares, and its module. Whatever goes wrong here is the reference's
fault (`InvalidReference`).
"""

from __future__ import annotations

import copy
import linecache
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

from tasks.harness.judge.problem import seed_all
from tasks.harness.shared import paritybench
from tasks.harness.shared.module_values import plain

from .compare import Tolerance, compare
from .distributions import copied, map_tensors, tensors_of
from .weights import State

_FILE = "reference.py"


class InvalidReference(Exception):
    """The reference cannot be used; the message is a sentence."""


class _TooSlow(Exception):
    """The reference's time is up."""


class Reference:
    """A reference that has been loaded, and whose module has been made."""

    def __init__(self, text: str, entry_point: str, *, directory: Path, weight_seed: int, limit_s: float) -> None:
        """Run the file and make the module.

        Raises:
            InvalidReference: see the module.
        """
        self._limit_s = limit_s
        self.precision: torch.dtype | None = None
        self.device = "cpu"
        self._namespace = self._run_file(text, directory)
        self._make = self._namespace.get(entry_point)
        if not callable(self._make):
            raise InvalidReference(f"the reference defines no class {entry_point}")
        if not callable(self._namespace.get("get_inputs")):
            raise InvalidReference("the reference defines no function get_inputs")
        self.weight_seed = weight_seed
        self.module: Any = None
        self._modes: list[tuple[torch.nn.Module, bool]] = []

    def _run_file(self, text: str, directory: Path) -> dict[str, Any]:
        path = directory / _FILE
        path.write_text(text, encoding="utf-8")
        # torch.jit and inspect look for the source.
        linecache.checkcache(str(path))
        paritybench.install()
        module = ModuleType("reference")
        module.__file__ = str(path)
        sys.modules["reference"] = module
        try:
            code = compile(text, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidReference(f"the reference is no Python: {_sentence(error)}") from error
        with self._fault("the reference cannot be imported"):
            exec(code, module.__dict__)  # noqa: S102 the judge runs references
        return module.__dict__

    @property
    def is_module(self) -> bool:
        """Whether what was made has parameters and modes."""
        return isinstance(self.module, torch.nn.Module)

    def init_inputs(self) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the constructor: a flat list (KernelBench), or `[[args], {kwargs}]` (KernelBook).

        Raises:
            InvalidReference: see the module.
        """
        function = self._namespace.get("get_init_inputs")
        if function is None:
            return [], {}
        seed_all(self.weight_seed)
        with self._fault("get_init_inputs raised"):
            found = function()
        if not isinstance(found, (list, tuple)):
            raise InvalidReference(f"get_init_inputs returned a {type(found).__name__}, expected a list")
        is_pair = len(found) == 2 and isinstance(found[0], (list, tuple)) and type(found[1]) is dict
        if is_pair and all(type(key) is str for key in found[1]):
            return list(found[0]), dict(found[1])
        return list(found), {}

    def construct(self) -> None:
        """Make the module, with the weight seed.

        Raises:
            InvalidReference: see the module.
        """
        args, kwargs = self.init_inputs()
        seed_all(self.weight_seed)
        make: Callable[..., Any] = self._make  # type: ignore[assignment]  # callable, as __init__ has checked
        with self._fault("the reference's constructor raised"):
            module = make(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        if not callable(module):
            raise InvalidReference(f"the reference's class makes a {type(module).__name__}, which cannot be called")
        if isinstance(module, torch.nn.Module):
            with self._fault("the reference's module cannot be moved"):
                module = module.to(device=self.device, dtype=self.precision)
        self.module = module
        self._modes = [(part, part.training) for part in module.modules()] if self.is_module else []

    @property
    def made_in_train_mode(self) -> bool:
        """The mode that the constructor left."""
        return not self._modes or self._modes[0][1]

    def set_eval(self, *, on: bool) -> None:
        """Put the module into eval mode, or every part of it back into the mode of construction."""
        if on and self.is_module:
            self.module.eval()
        elif not on:
            for part, train in self._modes:
                part.training = train

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the tensors of its state_dict."""
        if not self.is_module:
            return {}
        found = self.module.state_dict()
        return {name: item.detach().clone() for name, item in found.items() if isinstance(item, torch.Tensor)}

    def parameters(self) -> frozenset[str]:
        """The names of its parameters."""
        if not self.is_module:
            return frozenset()
        return frozenset(name for name, _ in self.module.named_parameters(remove_duplicate=False))

    def load(self, state: State) -> None:
        """Copy tensors into the module's own."""
        if not self.is_module:
            return
        with torch.no_grad():
            for name, item in self.module.state_dict(keep_vars=True).items():
                if name in state and isinstance(item, torch.Tensor):
                    item.copy_(state[name])

    def inputs(self, seed: int) -> list[Any]:
        """Positional arguments of one call, under a seed, cast and moved as asked.

        Raises:
            InvalidReference: see the module.
        """
        seed_all(seed)
        with self._fault("get_inputs raised"):
            found = self._namespace["get_inputs"]()
        if isinstance(found, torch.Tensor):
            found = [found]
        if not isinstance(found, (list, tuple)):
            raise InvalidReference(f"get_inputs returned a {type(found).__name__}, expected a list")
        return [map_tensors(item, self._cast) for item in found]

    def _cast(self, item: torch.Tensor) -> torch.Tensor:
        # Integers and bools keep their dtype: they are indices and masks.
        cast = self.precision is not None and item.is_floating_point()
        return item.detach().to(device=self.device, dtype=self.precision if cast else None)

    def run(self, args: list[Any], seed: int | None) -> tuple[Any, list[torch.Tensor]]:
        """Call the module with copies of the arguments: its output, and the copies as the call left them.

        Raises:
            InvalidReference: see the module.
        """
        own = copied(args)
        if seed is not None:
            seed_all(seed)
        with self._fault("the reference's forward raised"), torch.no_grad():
            output = self.module(*own)
        # The module may return a buffer of its own, which the next call overwrites.
        return copied(plain(output)), tensors_of(own)

    @contextmanager
    def _fault(self, what: str) -> Iterator[None]:
        """Turn what the reference's code raises, and its time limit, into InvalidReference."""
        try:
            with _alarm(self._limit_s):
                yield
        except _TooSlow as error:
            raise InvalidReference(f"{what.rpartition(' ')[0]} took longer than {self._limit_s:g} s") from error
        except (Exception, SystemExit) as error:
            raise InvalidReference(f"{what}: {_sentence(error)}") from error


@contextmanager
def _alarm(limit_s: float) -> Iterator[None]:
    """Interrupt Python code of the main thread after some seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, __: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def alike(first: object, second: object) -> bool:
    """Whether two outputs of the reference are the same, up to rounding."""
    return compare(first, second, Tolerance()).problem is None


def _sentence(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()[:2000]
