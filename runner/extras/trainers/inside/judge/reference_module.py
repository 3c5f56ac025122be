"""The reference of a group, run in the judge's process: a file of KernelBench's or KernelBook's form.

Owns the reference's namespace, which no candidate shares, its module and its settings of the process. Whatever goes
wrong here is the reference's fault (`InvalidReference`), unless it goes right again when no candidate lives.
"""

from __future__ import annotations

import copy
import linecache
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

from runner.extras.trainers.inside.shared import paritybench
from runner.extras.trainers.inside.shared.module_values import has_lazy_parts, loadable_state, name_of_entry, plain
from runner.extras.trainers.inside.shared.own_memory import limit_note, limited_memory
from tasks.harness.judge.author_code import sentence_of
from tasks.harness.judge.own_settings import OwnSettings
from tasks.harness.judge.problem import fill_heap
from tasks.harness.shared.generators import seed_all
from tasks.harness.shared.source import compile_text
from tasks.harness.shared.values import map_tensors, tensors_of

from .compare import Tolerance, compare, kind_of
from .distributions import copied, copied_arguments
from .weights import State

_FILE = "reference.py"
#: What unwritten memory is filled with: as many of these bytes are 2 to 33 in every floating dtype, with the sign -2 or
#: less. So uninitialised weights are moderate numbers, and an output that shows such memory is another at each call.
FILL = 0x40
SIGN = 0x80
#: How many times its limit the reference may take while a candidate lives, whose processes may slow it.
_BESIDE = 3.0


class InvalidReference(Exception):
    """The reference cannot be used; the message is a sentence."""

    def __init__(self, message: str, *, again: Callable[[], object] | None = None) -> None:
        """`again`: does what has failed once more; None: a repetition would say nothing new."""
        super().__init__(message)
        self.again = again

    @property
    def is_slow(self) -> bool:
        """Whether its time was up."""
        return isinstance(self.__cause__, _TooSlow)


class _TooSlow(Exception):
    """The reference's time is up."""


class Reference:
    """A reference that has been loaded, and whose module has been made. Every method may raise InvalidReference."""

    def __init__(
        self,
        text: str,
        entry_point: str,
        *,
        directory: Path,
        weight_seed: int,
        limit_s: float,
        memory_bytes: int | None = None,
        device: str = "cpu",
        precision: torch.dtype | None = None,
    ) -> None:
        """Run the file. `weight_seed`: of the generators when the module is made; `limit_s`: for one piece of its code.

        `memory_bytes`: that its tensors may have in this process; None: any. `precision`: that its floating tensors are
        cast to; None: they stay as they are.
        """
        self._file = text, entry_point, directory
        self._limit_s = limit_s
        self.memory_bytes = memory_bytes
        self.precision = precision
        self.device = device
        self.weight_seed = weight_seed
        #: Whether no candidate lives. Then its failures are its own.
        self.is_alone = True
        #: What inputs, a call and a comparison take at most where no candidate lives; 0: not known yet.
        self.usual_ns = 0
        self._settings = OwnSettings()
        self._fill = FILL
        self._namespace = self._run_file(text, directory)
        self._make = self._namespace.get(entry_point)
        if not callable(self._make):
            raise InvalidReference(f"the reference defines no class {entry_point}")
        if not callable(self._namespace.get("get_inputs")):
            raise InvalidReference("the reference defines no function get_inputs")
        self.module: Any = None
        self._modes: list[tuple[torch.nn.Module, bool]] = []

    def anew(self) -> Reference:
        """The same file, run once more: nothing of it has been called."""
        text, entry_point, directory = self._file
        reference = Reference(
            text,
            entry_point,
            directory=directory,
            weight_seed=self.weight_seed,
            limit_s=self._limit_s,
            memory_bytes=self.memory_bytes,
            device=self.device,
            precision=self.precision,
        )
        reference.is_alone = self.is_alone
        # A module that keeps such memory is another, too.
        reference._fill = FILL | SIGN
        return reference

    def _run_file(self, text: str, directory: Path) -> dict[str, Any]:
        path = directory / _FILE
        paritybench.install()
        module = ModuleType("reference")
        module.__file__ = str(path)
        sys.modules["reference"] = module
        try:
            data = text.encode("utf-8")
            code = compile_text(data, path)
        except (SyntaxError, ValueError) as error:
            raise InvalidReference(f"the reference is no Python: {sentence_of(error)}") from error
        # torch.jit and inspect look for the source.
        path.write_bytes(data)
        linecache.checkcache(str(path))
        with self._fault("the reference", "cannot be imported"):
            exec(code, module.__dict__)  # noqa: S102 the judge runs references
        return module.__dict__

    @property
    def is_module(self) -> bool:
        """Whether what was made has parameters and modes."""
        return isinstance(self.module, torch.nn.Module)

    def init_inputs(self) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the constructor: a flat list (KernelBench), or `[[args], {kwargs}]` (KernelBook)."""
        function = self._namespace.get("get_init_inputs")
        if function is None:
            return [], {}
        seed_all(self.weight_seed)
        with self._fault("get_init_inputs"):
            arguments = function()
        if not isinstance(arguments, (list, tuple)):
            raise InvalidReference(f"get_init_inputs returned a {type(arguments).__name__}, expected a list")
        is_pair = len(arguments) == 2 and isinstance(arguments[0], (list, tuple)) and type(arguments[1]) is dict
        if is_pair and all(type(key) is str for key in arguments[1]):
            return list(arguments[0]), dict(arguments[1])
        return list(arguments), {}

    def construct(self) -> None:
        """Make the module, with the weight seed. One with lazy parts is called once."""
        args, kwargs = self.init_inputs()
        make: Callable[..., Any] = self._make  # type: ignore[assignment]  # callable, as __init__ has checked
        seed_all(self.weight_seed)
        fill_heap(self._fill)
        # As its call.
        with self._fault("the reference's constructor"), torch.no_grad():
            module = make(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        if not callable(module):
            raise InvalidReference(f"the reference's class makes a {type(module).__name__}, which cannot be called")
        if isinstance(module, torch.nn.Module):
            with self._fault("the reference's module", "cannot be moved"):
                module = module.to(device=self.device, dtype=self.precision)
        self.module = module
        with self._fault("the reference's parts", "cannot be listed"):
            self._modes = [(part, part.training) for part in module.modules()] if self.is_module else []
            is_lazy = has_lazy_parts(module)
        if is_lazy:
            self.run(self.first_args(), self.weight_seed)

    def first_args(self) -> list[Any]:
        """Arguments of the call that a module with lazy parts makes first."""
        return self.inputs(self.weight_seed)

    @property
    def made_in_train_mode(self) -> bool:
        """The mode that the constructor left."""
        return not self._modes or self._modes[0][1]

    def set_eval(self, *, on: bool) -> None:
        """Put the module into eval mode, or every part of it back into the mode of construction."""
        with self._fault("the reference's mode", "cannot be set"):
            if on and self.is_module:
                self.module.eval()
            elif not on:
                for part, train in self._modes:
                    part.training = train

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the tensors of its state_dict that can be loaded."""
        with self._fault("the reference's state_dict"):
            return {name: item.detach().clone() for name, item in loadable_state(self.module).items()}

    def parameters(self) -> frozenset[str]:
        """The names of its parameters."""
        if not self.is_module:
            return frozenset()
        with self._fault("the reference's named_parameters"):
            return frozenset(name_of_entry(name) for name, _ in self.module.named_parameters(remove_duplicate=False))

    def load(self, state: State) -> None:
        """Copy tensors into the module's own."""
        with self._fault("the reference's weights", "cannot be loaded"), torch.no_grad():
            for name, item in loadable_state(self.module).items():
                if name in state:
                    item.copy_(state[name])

    def inputs(self, seed: int) -> list[Any]:
        """Positional arguments of one call, under a seed, cast and moved as asked."""
        seed_all(seed)
        # One block for all: to change settings and limits takes as long as the inputs of a small module.
        with self._fault("get_inputs", again=lambda: self.inputs(seed)):
            arguments = self._namespace["get_inputs"]()
            if isinstance(arguments, torch.Tensor):
                arguments = [arguments]
            if not isinstance(arguments, (list, tuple)):
                raise InvalidReference(f"get_inputs returned a {type(arguments).__name__}, expected a list")
            cast: list[Any] = map_tensors(list(arguments), self._cast)
            return cast

    def _cast(self, item: torch.Tensor) -> torch.Tensor:
        # Integers and bools keep their dtype: they are indices and masks.
        cast = self.precision is not None and item.is_floating_point()
        return item.detach().to(device=self.device, dtype=self.precision if cast else None)

    def run(self, args: list[Any], seed: int | None) -> tuple[Any, list[torch.Tensor]]:
        """Call the module with copies of the arguments: its output, and the copies as the call left them."""
        again = partial(self.run, args, seed)
        self._fill ^= SIGN
        fill_heap(self._fill)
        with self._fault("the reference's forward", again=again):
            own = copied_arguments(args)
            if seed is not None:
                seed_all(seed)
            with torch.no_grad():
                output = self.module(*own)
            # The module may return a buffer of its own, which the next call overwrites.
            return copied(plain(output)), tensors_of(own)

    @contextmanager
    def _fault(self, code: str, failed: str = "raised", *, again: Callable[[], object] | None = None) -> Iterator[None]:
        """Run the reference's code, with its own settings. What it raises, and its time limit, is InvalidReference."""
        limit_s = self._limit_s if self.is_alone else _BESIDE * self._limit_s
        try:
            with self._settings.installed(code), limited_memory(self.memory_bytes), _alarm(limit_s):
                yield
                _require_inference_mode_off()
        except InvalidReference:
            raise
        except _TooSlow as error:
            raise InvalidReference(f"{code} took longer than {limit_s:g} s", again=again) from error
        except Exception as error:
            text = sentence_of(error)
            note = limit_note(text, self.memory_bytes)
            raise InvalidReference(f"{code} {failed}: {text}{note}", again=again) from error


def _require_inference_mode_off() -> None:
    if torch.is_inference_mode_enabled():
        raise InvalidReference("the reference leaves torch's inference mode on")


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


def identical(first: object, second: object) -> bool:
    """Whether two outputs are the same to the bit."""
    ones, others = tensors_of(first), tensors_of(second)
    same = len(ones) == len(others) and all(map(same_bits, ones, others))
    # Numbers beside tensors.
    return same and alike(first, second)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bytes."""
    if kind_of(one) != kind_of(other):
        return False
    return torch.equal(
        *(item.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for item in (one, other))
    )
