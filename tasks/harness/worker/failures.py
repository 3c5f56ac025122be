"""A submission's exception, as a message. Everything in it is text to show, never evidence."""

from __future__ import annotations

import subprocess
import traceback
from pathlib import Path
from typing import Any

from .compiled import CompileFailed, KernelFailed
from .submission import LoadFailed
from .texts import cut, summary

#: Where `tasks` is, and what guests have for a container.
ROOT = Path(__file__).parents[3]
#: Frames of files below these folders are left out of a submission's tracebacks.
HARNESS = (str(ROOT / "tasks" / "harness"), str(ROOT / "runner"))
#: Classes of exceptions that say that a kernel was not built, by (root package, class name). The text of an exception
#: is never looked at.
_BUILD_ERRORS = {("triton", "CompilationError"), ("torch", "CppCompileError"), ("torch", "InductorError")}


def describe_failure(error: BaseException) -> dict[str, Any]:
    """An exception of the submission as a message: kind, text, and its own frames of the traceback."""
    if isinstance(error, SystemExit):
        return failed("runtime_error", f"the submission called exit({error.code!r:.100}), which ends nothing here")
    if isinstance(error, CompileFailed):
        return failed("compile_error", str(error))
    if isinstance(error, KernelFailed | LoadFailed):
        return failed("runtime_error", str(error))
    kind = "compile_error" if _is_build_failure(error) else "runtime_error"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(HARNESS)]
    # The text of a syntax error says where it is. Frames of the import machinery do not help.
    shown = [] if isinstance(error, SyntaxError) else [f for f in frames if not f.filename.startswith("<frozen")]
    trace = "".join(traceback.format_list(shown[-12:]))
    return failed(kind, summary(error), trace)


def _is_build_failure(error: BaseException) -> bool:
    if isinstance(error, SyntaxError):
        return True
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return False
        if isinstance(seen, subprocess.CalledProcessError) and "ninja" in str(seen.cmd):
            return True
        if any((kind.__module__.partition(".")[0], kind.__name__) in _BUILD_ERRORS for kind in type(seen).__mro__):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def failed(kind: str, text: str, trace: str = "") -> dict[str, Any]:
    """The message that a call failed."""
    return {"op": "failed", "kind": kind, "text": cut(text), "trace": cut(trace)}
