"""How the worker describes what a submission raised."""

from __future__ import annotations

import subprocess

import pytest

from tasks.harness.worker import describe_failure


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
