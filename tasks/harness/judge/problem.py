"""The task's own functions, called in the judge: generate_input, check_implementation and, if there is one, ref_kernel.

Owns the task's directory and the global random generators. What goes wrong here is the task's fault and raises
`TaskFault`, unless the device failed or a submission holds its memory (`accelerator`).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from tasks.harness.emulate import asked
from tasks.harness.shared.generators import seed_all
from tasks.harness.shared.values import Packed, Unsupported, pack

from .accelerator import raise_for_device
from .author_code import sentence_of
from .cases import Value
from .filled_memory import FilledMemory
from .own_settings import OwnSettings

#: Loaded once: a reference's every call fills memory anew.
_LIBC = ctypes.CDLL(None)


class TaskFault(Exception):
    """The task definition does not work. The message names the function and the file."""


class CheckRaised(Exception):
    """check_implementation raised. Whose fault that is depends on the output that it got."""


class Problem:
    """A task that has been written to a directory and imported."""

    def __init__(
        self,
        *,
        generate: Callable[..., object],
        check: Callable[[object, object], object],
        reference: Callable[[object], object] | None,
        modules: frozenset[str],
        settings: OwnSettings | None = None,
        directory: Path | None = None,
    ) -> None:
        self._generate = generate
        self._check = check
        self._reference = reference
        self._modules = modules
        #: What importing the task has set.
        self._settings = settings or OwnSettings()
        #: Where its files are.
        self._directory = directory

    @staticmethod
    def unpack(files: Mapping[str, str], directory: Path) -> None:
        """Write the task's files below `directory`, which only this user can read.

        Raises:
            TaskFault: a file name that leaves the directory, or no reference.py.
        """
        for name, text in files.items():
            relative = PurePosixPath(name)
            if relative.is_absolute() or ".." in relative.parts or not relative.parts:
                raise TaskFault(f"the task's file name {name!r} leaves its directory; expected a relative name")
            path = directory / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if "reference.py" not in files:
            raise TaskFault(f"the task has no file reference.py (found {', '.join(sorted(files)) or 'none'})")

    @classmethod
    def load(cls, directory: Path) -> Problem:
        """Import the reference.py of a task that has been unpacked.

        Raises:
            TaskFault: it cannot be imported, or lacks a function.
        """
        sys.path.insert(0, str(directory))
        settings = OwnSettings()
        try:
            with settings.installed("the import of the task's reference.py"):
                module = importlib.import_module("reference")
        except Exception as error:
            raise TaskFault(f"the task's reference.py cannot be imported: {sentence_of(error, directory)}") from error
        functions = {name: getattr(module, name, None) for name in ("generate_input", "check_implementation")}
        for name, function in functions.items():
            if not callable(function):
                raise TaskFault(f"the task's reference.py defines no function {name}")
        reference = getattr(module, "ref_kernel", None)
        return cls(
            generate=module.generate_input,
            check=module.check_implementation,
            reference=reference if callable(reference) else None,
            modules=frozenset(path.stem for path in directory.glob("*.py")),
            settings=settings,
            directory=directory,
        )

    def generate(self, arguments: Mapping[str, Value], *, rng_seed: int | None) -> object:
        """A case's inputs. The global generators are set to `rng_seed` for it (None: unpredictably), then scrambled.

        Raises:
            TaskFault: generate_input raised.
            DeviceFull, DeviceFailed: it raised because of the submission or the device.
        """
        if rng_seed is None:
            scramble()
        else:
            seed_all(rng_seed)
        try:
            with self._settings.installed("the task's generate_input"), _allocating():
                return self._generate(**arguments)
        except Exception as error:
            raise_for_device(error)
            raise TaskFault(f"the task's generate_input raised {sentence_of(error, self._directory)}") from error
        finally:
            if rng_seed is not None:
                scramble()

    def pack(self, data: object, *, memory_bytes: int) -> Packed:
        """Take a case's inputs apart for the worker.

        Raises:
            TaskFault: they hold a value that cannot be sent, or more bytes than the case may hold.
        """
        try:
            packed = pack(data, modules=self._modules)
        except Unsupported as error:
            raise TaskFault(
                f"the task's generate_input returned what the built-in harness cannot use: {error}"
            ) from error
        if 2 * packed.nbytes > memory_bytes:
            raise TaskFault(
                f"the case has {packed.nbytes} bytes of inputs, held twice; that is more than the {memory_bytes} bytes "
                "it may hold on this GPU type: give it smaller cases (runner.yml)"
            )
        return packed

    def check(self, data: object, output: object) -> tuple[bool, str]:
        """Call check_implementation. It may return text ("" is right), (bool, text), or a bool.

        Comparisons of numpy and torch make bools of their own, and there may be None for a text.

        Raises:
            CheckRaised: it raised.
            TaskFault: it returned something else.
            DeviceFull, DeviceFailed: it raised because of the submission or the device.
        """
        try:
            with self._settings.installed("the task's check_implementation"):
                answer = self._check(data, output)
                good, message = _verdict(answer)
        except Exception as error:
            raise_for_device(error)
            raise CheckRaised(sentence_of(error, self._directory)) from error
        if good is None or not isinstance(message, str | None):
            parts = ", ".join(type(part).__qualname__ for part in answer) if isinstance(answer, tuple | list) else ""
            raise TaskFault(
                f"the task's check_implementation returned a {type(answer).__name__}{f' of {parts}' if parts else ''}, "
                "expected text, a bool, or a bool with text (reference.py)"
            )
        return good, message or ("" if good else "the output is wrong")

    def expected(self, data: object) -> object | None:
        """What ref_kernel returns, or None where the task has none or it raises.

        Raises:
            DeviceFull, DeviceFailed: it raised because of the submission or the device.
        """
        if self._reference is None:
            return None
        try:
            with self._settings.installed("the task's ref_kernel"):
                return self._reference(data)
        except Exception as error:  # noqa: BLE001 asked only after check_implementation raised; the answer is unknown
            raise_for_device(error)
            return None


def _verdict(answer: object) -> tuple[bool | None, object]:
    """The bool in a check's answer, or None where there is none, and what stands for its text."""
    if isinstance(answer, str):
        return not answer, answer
    truth, text = answer if isinstance(answer, tuple | list) and len(answer) == 2 else (answer, None)
    if isinstance(truth, torch.Tensor) and truth.dtype is torch.bool and truth.numel() == 1:
        truth = truth.item()
    return (bool(truth) if isinstance(truth, bool | np.bool_) else None), text


def rng_seed_of(global_seed: int | None) -> int:
    """The seed of the global generators by the contract: the global seed, or 42, reduced to numpy's range."""
    return (42 if global_seed is None else global_seed) % (1 << 32)


def guard_heap() -> None:
    """Overwrite memory as it is allocated and freed.

    A task's torch.empty goes to the worker as it is. Without this it could hold data of the judge.
    """
    fill_heap(random.SystemRandom().randrange(1, 255))


def fill_heap(byte: int) -> None:
    """Fill memory with a byte as it is allocated, and with its complement as it is freed; not 255, which ends this.

    Memory that the C library asks the kernel for, above 128 KiB to 32 MiB, is zero when it is first allocated.
    """
    m_perturb = -6
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(m_perturb, byte ^ 0xFF)


def scramble() -> None:
    """Seed every global generator from the operating system."""
    seed_all(int.from_bytes(os.urandom(4), "big"))


def _allocating() -> AbstractContextManager[object]:
    """What a task's generate_input runs in: where there is a device, its memory is filled as it is allocated."""
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch lacks it
    return FilledMemory() if used and not asked() else nullcontext()
