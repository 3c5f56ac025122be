"""Imports a submission as the worker would, without judge or device, so that its compilers run ahead of time.

What they build stays in their caches. Init of a build container starts this, in a folder with the files that the worker
would write. Arguments: the submission's name; of a module also the exit code for what compilers refuse, whose message
is then the end of stderr, and the names that its class may have. However else the import ends, it is no verdict.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tasks.harness.emulate import install_if_asked

from .failures import describe_failure
from .module import load_module
from .submission import import_submission


def main() -> int:
    """Entry point."""
    install_if_asked()
    name, *module = sys.argv[1:]
    if module:
        return _build_module(name, refused=int(module[0]), entry_points=module[1:])
    import_submission(Path.cwd(), name)
    return 0


def _build_module(name: str, *, refused: int, entry_points: Sequence[str]) -> int:
    """Run a candidate's file; the exit code."""
    try:
        load_module(Path.cwd(), Path(name).read_text(encoding="utf-8"), list(entry_points))
    except BaseException as error:  # noqa: BLE001 the harness boundary: whatever a candidate raises
        failure = describe_failure(error)
        if failure["kind"] != "compile_error":
            traceback.print_exc()
            return 1
        sys.stderr.write(failure["text"])
        sys.stderr.flush()
        return refused
    return 0
