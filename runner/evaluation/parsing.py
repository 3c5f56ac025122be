"""Whether a file may be Python, in a process beside the slots: a container for each would cost a hundred times as much.

Decides no verdict: the interpreter of a submission may be another one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from runner.evaluation.build_plan import REFUSED
from runner.evaluation.container_spec import parse_process

_LIMIT_S: Final = 30.0


def may_be_python(code: bytes, cpus: Sequence[int]) -> bool:
    """False if this daemon's interpreter refuses the file; nothing of it runs. Memory and time are bounded.

    `cpus`: the cores that it may use.
    """
    try:
        process = subprocess.run(
            [*parse_process(), "/dev/stdin", str(REFUSED), *map(str, cpus)],
            input=code,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return True
    return process.returncode != REFUSED
