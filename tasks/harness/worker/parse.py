"""Says whether a submission's file is Python, without running any of it: the worker's import would fail as this does.

Init of a container without judge or device starts this beside the file. Arguments: the file's name, and the exit code
for a file that is no Python, whose message is then on stdout. However else this ends, it says nothing. Must import
nothing but the standard library: torch would take longer than all the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tasks.harness.shared.source import compile_text

from .texts import cut, summary


def main() -> int:
    """Entry point."""
    name, refused = sys.argv[1:]
    path = Path.cwd() / name
    try:
        compile_text(path.read_bytes(), path)
    except SyntaxError as error:
        sys.stdout.write(cut(summary(error)))
        return int(refused)
    return 0
