"""Says whether a submission's file is Python, without running any of it: the worker's import would fail as this does.

Started beside the file by init of a container, and by the daemon, whose answer is no verdict. Arguments: the file's
name, the exit code for a file that is no Python, whose message is then on stdout, and the cores to use; none: all. A
file that takes too much memory or time ends this process in another way, which says nothing. Must import nothing but
the standard library.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from .texts import cut, summary

#: Of this process; the longest file that can be submitted takes less.
_MEMORY_BYTES = 2 << 30
_CPU_S = 10


def main() -> int:
    """Entry point."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    name, refused, *cores = sys.argv[1:]
    if cores:
        os.sched_setaffinity(0, map(int, cores))
    path = Path(name).absolute()
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        sys.stdout.buffer.write(cut(summary(error)).encode())
        return int(refused)
    return 0
