"""A task's files side by side, as the judge has them, and its cases and submissions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runner.task_format import load_folder
from runner.task_format.model import SUBMISSION, TaskFolder
from tests.unit.problems.oracle import TASKS


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A task's files side by side in a directory that Python imports from."""

    folder: TaskFolder
    directory: Path

    @property
    def modules(self) -> Sequence[str]:
        """The names under which the task's files are imported."""
        return [Path(name).stem for name in self.folder.task.files if name.endswith(".py")]

    def unpack(self) -> None:
        """Write every file of the task but the submission."""
        for name, text in self.folder.task.files.items():
            if text != SUBMISSION:
                (self.directory / name).write_text(text)

    def forget(self) -> None:
        """Let go of what was imported: the next task has modules of the same names."""
        for name in self.modules:
            sys.modules.pop(name, None)

    def generate(self, case: dict[str, Any]) -> Any:  # noqa: ANN401 whatever the task makes
        """The inputs of a case."""
        return self.module("reference").generate_input(**case)

    def check(self, data: object, output: object) -> tuple[bool, str]:
        """The task's own verdict."""
        good, message = self.module("reference").check_implementation(data, output)
        return bool(good), str(message)

    def kernel(self, source: str) -> Callable[[Any], Any]:
        """The custom_kernel of a submission."""
        (self.directory / "submission.py").write_text(source)
        sys.modules.pop("submission", None)
        importlib.invalidate_caches()
        kernel: Callable[[Any], Any] = self.module("submission").custom_kernel
        return kernel

    def candidate(self, name: str) -> Callable[[Any], Any]:
        """The reference, or the custom_kernel of one of the task's files."""
        if name == "reference":
            reference: Callable[[Any], Any] = self.module("reference").ref_kernel
            return reference
        return self.kernel((TASKS / self.folder.name / name).read_text())

    @staticmethod
    def module(name: str) -> ModuleType:
        """One of the task's files, imported."""
        return importlib.import_module(name)


@contextmanager
def unpacked(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A shipped problem in a directory, as the judge unpacks it."""
    made = Bench(folder=load_folder(TASKS / name), directory=directory)
    made.unpack()
    monkeypatch.syspath_prepend(directory)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made.forget()
    yield made
    made.forget()


def cpu_cases(folder: TaskFolder) -> Sequence[dict[str, Any]]:
    """Tests and benchmarks of the CPU type."""
    cases = folder.task.cases_for("CPU")
    return [dict(case) for case in (*(cases.tests or ()), *(cases.benchmarks or ()))]


def hidden_cases(folder: TaskFolder) -> Sequence[dict[str, Any]]:
    """Those of the CPU type that only secret runs have."""
    return [dict(case) for case in folder.task.cases_for("CPU").hidden or ()]


def reseeded(case: dict[str, Any], number: int = 1) -> dict[str, Any]:
    """The case with another seed, one of any number; 0 is its own."""
    return {**case, "seed": case["seed"] + 13 * number}


def solutions(name: str, kind: str) -> list[Path]:
    """The submissions in a task's `solutions` folder of one kind."""
    found = sorted((TASKS / name / "solutions" / kind).glob("*.py"))
    assert found, f"tasks/{name}/solutions/{kind} holds no submission"
    return found
