"""How the worker describes what a submission raised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest
import torch

from tasks.harness.worker import describe_failure, describe_place


class CompilationError(Exception):
    """Stands in for Triton's, which is told apart by its package and name."""


CompilationError.__module__ = "triton.compiler.errors"


def _ninja_failed() -> BaseException:
    try:
        try:
            subprocess.run(["false", "ninja"], check=True)
        except subprocess.CalledProcessError as error:
            raise RuntimeError("Error building extension") from error
    except RuntimeError as error:
        return error
    raise AssertionError("false has succeeded")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (SyntaxError("invalid syntax"), "compile_error", "SyntaxError: invalid syntax"),
        (_ninja_failed(), "compile_error", "Error building extension"),
        (CompilationError("at 3:4"), "compile_error", "at 3:4"),
        (RuntimeError("ninja: build stopped"), "runtime_error", "ninja: build stopped"),
        (ModuleNotFoundError("No module named 'triton'"), "runtime_error", "No module named"),
        (SystemExit(3), "runtime_error", "exit(3)"),
        (KeyboardInterrupt(), "runtime_error", "KeyboardInterrupt"),
        (ValueError("\udc80"), "runtime_error", "ValueError: ?"),
    ],
)
def test_kinds_of_failure(error: BaseException, kind: str, text: str) -> None:
    """Builds are told from runs by what was raised, never by its text."""
    described = describe_failure(error)

    assert (described["op"], described["kind"]) == ("failed", kind)
    assert text in described["text"]


def test_text_is_cut() -> None:
    """A message of any length fits the channel."""
    described = describe_failure(ValueError("x" * 10_000_000))

    assert len(described["text"]) < 10_000
    assert described["text"].startswith("ValueError: xxx")


def _frame_of(source: str, path: Path) -> FrameType:
    """Where a program is when it calls `here`."""
    found: list[FrameType] = []
    code = compile(source, str(path), "exec")
    exec(code, {"here": lambda: found.append(sys._getframe(1))})  # noqa: S102 the test's own program
    return found[0]


def test_a_place_is_the_submissions_innermost_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of libraries below it do not hide it."""
    monkeypatch.chdir(tmp_path)
    source = "def custom_kernel(data):\n    here()\ncustom_kernel(None)\n"

    described = describe_place(_frame_of(source, tmp_path / "submission.py"))

    assert described == {"op": "stuck", "text": "was at submission.py:2, in custom_kernel", "waits": False}


def test_who_is_inside_a_collective_waits_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of torch.distributed anywhere below the submission's."""
    monkeypatch.chdir(tmp_path)
    inner = Path(torch.__file__).parent / "distributed" / "made_up.py"
    code = compile("def all_reduce(here):\n    here()\n", str(inner), "exec")
    library: dict[str, object] = {}
    exec(code, library)  # noqa: S102 the test's own program
    found: list[FrameType] = []
    source = "def custom_kernel(data):\n\n    all_reduce(here)\ncustom_kernel(None)\n"
    names = {"here": lambda: found.append(sys._getframe(1)), "all_reduce": library["all_reduce"]}
    exec(compile(source, str(tmp_path / "submission.py"), "exec"), names)  # noqa: S102 the test's own program

    described = describe_place(found[0])

    assert described == {
        "op": "stuck",
        "text": "waited for the others at submission.py:3, in custom_kernel",
        "waits": True,
    }
