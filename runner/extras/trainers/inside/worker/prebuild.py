"""Runs a candidate's file as its worker would, without judge or device, so that its compilers run ahead of time.

As `tasks.harness.worker.prebuild`. Arguments: the file's name, the exit code for what compilers refuse, whose message
is then the end of stderr, and the names that its class may have. However else this ends, it is no verdict.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from tasks.harness.emulate import install_if_asked
from tasks.harness.worker.failures import describe_failure

from .module import load_module


def main() -> int:
    """Entry point."""
    install_if_asked()
    name, refused, *entry_points = sys.argv[1:]
    try:
        load_module(Path(name).read_text(encoding="utf-8"), entry_points)
    except BaseException as error:  # noqa: BLE001 the harness boundary: whatever a candidate raises
        failure = describe_failure(error)
        if failure["kind"] != "compile_error":
            traceback.print_exc()
            return 1
        sys.stderr.write(failure["text"])
        sys.stderr.flush()
        return int(refused)
    return 0
