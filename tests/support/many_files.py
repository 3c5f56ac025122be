"""A process that holds many files: descriptors that it opens are too large for select(2)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_TOO_LARGE = 1024


@contextmanager
def many_files() -> Iterator[None]:
    """Hold descriptors up to 1023: every file that is opened meanwhile has a higher one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(_TOO_LARGE):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield
