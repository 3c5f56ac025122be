"""One call of a submission in a process of its own, for profilers that only see processes they have started.

The worker starts this below a profiler, as the worker's user, in the worker's directory. Nothing that it does is
judged.
Argument: a directory with `call.json` and the inputs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tasks.harness.emulate import install_if_asked
from tasks.harness.shared.profilers import RANGE

from .compiled import flatten, load_library
from .submission import import_submission

CALL = "call.json"
INPUTS = "inputs.pt"


def write(directory: Path, *, submission: str | None, program: str | None, data: object) -> None:
    """Write a call to a directory: the name of a Python submission or of a library, and the inputs."""
    (directory / CALL).write_text(json.dumps({"submission": submission, "program": program}), encoding="utf-8")
    torch.save(data, directory / INPUTS)


def main() -> int:
    """Warm up, then make the call between the marks that profilers look for."""
    install_if_asked()
    directory = Path(sys.argv[1])
    call = json.loads((directory / CALL).read_text(encoding="utf-8"))
    kernel: Callable[[Any], Any]
    if call["program"] is not None:
        library = load_library(Path.cwd() / call["program"])

        def kernel(data: Any) -> Any:
            return library(flatten(data))

    else:
        kernel = getattr(import_submission(Path.cwd(), call["submission"]), "custom_kernel")  # noqa: B009 a module's
    # The worker wrote them a moment ago. Loaded twice, because a kernel may change its inputs.
    warm, data = (torch.load(directory / INPUTS, weights_only=False) for _ in range(2))
    kernel(warm)
    _wait()
    marks = torch.cuda.is_available() and torch.version.hip is None
    if marks:
        torch.cuda.nvtx.range_push(RANGE)  # type: ignore[no-untyped-call]  # torch lacks it
    kernel(data)
    _wait()
    if marks:
        torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]  # torch lacks it
    return 0


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
