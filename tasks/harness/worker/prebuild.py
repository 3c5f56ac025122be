"""Imports a submission as the worker would, without judge or device, so that its compilers run ahead of time.

What they build stays in their caches. How the import ends is no verdict. Init of a build container starts this,
in a folder with the files that the worker would write. The argument is the submission's name.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tasks.harness.emulate import install_if_asked

from .loading import import_submission


def main() -> int:
    """Entry point."""
    install_if_asked()
    import_submission(Path.cwd(), sys.argv[1])
    return 0
