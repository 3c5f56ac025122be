"""Loads a submission: a Python file that defines `custom_kernel`, or sources that a compiler makes a library of."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tasks.harness.shared import torch_headers
from tasks.harness.shared.source import compile_text

from .compiled import CompileFailed, compile_sources, flatten, load_library

Kernel = Callable[[Any], Any]


class LoadFailed(Exception):
    """The submission is no Python file, or defines no kernel."""


def as_it_is(data: Any) -> Any:
    """The kernel's argument where the kernel takes the inputs as the task made them."""
    return data


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A kernel that can be called, and the file that it came from."""

    kernel: Kernel
    #: Makes the kernel's argument from the inputs as the task made them.
    adapt: Callable[[Any], Any] = as_it_is
    #: The name of the Python file, or of the library, in the worker's directory. The other one is None.
    file: str | None = None
    program: str | None = None


def load(directory: Path, files: Mapping[str, str], name: str, compiled: Mapping[str, Any] | None) -> Submission:
    """Write a submission's files and load it. What the submission raises passes through.

    `name`: the submission's own file; `compiled`: None for Python, else `program`, the library's name, and `argv`, the
    compiler's command line.

    Raises:
        LoadFailed: it is no Python file, or defines no kernel.
        CompileFailed: the compiler refused the sources.
        KernelFailed: the library cannot be used.
    """
    for relative, text in files.items():
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return _load_python(directory, name) if compiled is None else _load_compiled(directory, compiled)


def import_submission(directory: Path, name: str) -> ModuleType | None:
    """The submission's module; None if that is no Python file. Its exceptions pass through."""
    torch_headers.prepare()
    sys.path.insert(0, str(directory))
    specification = importlib.util.spec_from_file_location("submission", directory / name)
    if specification is None or specification.loader is None:
        return None
    module = importlib.util.module_from_spec(specification)
    sys.modules["submission"] = module
    path = directory / name
    exec(compile_text(path.read_bytes(), path), module.__dict__)  # noqa: S102 that is what this process is for
    return module


def _load_python(directory: Path, name: str) -> Submission:
    module = import_submission(directory, name)
    if module is None:
        raise LoadFailed(f"{name} is no Python file; expected a name that ends .py")
    kernel = getattr(module, "custom_kernel", None)
    if not callable(kernel):
        instead = "nothing of that name" if kernel is None else f"a {type(kernel).__name__}"
        raise LoadFailed(f"the submission defines no function custom_kernel (found {instead})")
    return Submission(kernel=kernel, file=name)


def _load_compiled(directory: Path, compiled: Mapping[str, Any]) -> Submission:
    program = directory / compiled["program"]
    if not program.exists():
        # Nothing was built ahead. The submission's author may read the compiler's output.
        try:
            output = compile_sources(compiled["argv"], directory)
        except CompileFailed as error:
            sys.stderr.write(error.output)
            raise
        sys.stderr.write(output)
    return Submission(kernel=load_library(program), adapt=flatten, program=compiled["program"])
