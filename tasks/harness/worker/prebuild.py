"""Imports a submission as the worker would, without judge or device, so that its compilers run ahead of time.

What they build stays in their caches. Init of a build container starts this, in a folder with the files that the worker
would write. Argument: the submission's name. However the import ends, it is no verdict.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tasks.harness.emulate import install_if_asked

from .submission import import_submission


def main() -> int:
    """Entry point."""
    install_if_asked()
    import_submission(Path.cwd(), sys.argv[1])
    return 0
