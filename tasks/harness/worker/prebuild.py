"""Imports a submission as the worker would, where there is neither a judge nor a device, so that its compilers run.

What they make is left in their caches; how the import ends is nobody's verdict. Started by the steward of a container
that builds, in a folder with the files that the worker would write, with the submission's name as argument.
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
