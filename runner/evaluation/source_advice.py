"""Advice on a submission from its source code, where KernelGuard is installed; never a verdict.

Owns the one call of KernelGuard (its documented `--api-mode`: source on stdin, a JSON object on stdout). The source is
hostile, so KernelGuard parses it in a process with bounds on time and memory, if possible on cores that no slot uses.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from runner.model import Json

PACKAGE: Final = "kernelguard"
#: Reading a submission takes a fraction of a second.
LIMIT_S: Final = 10.0
_MEMORY_BYTES: Final = 1 << 30
_MOST: Final = 50
_CHARACTERS: Final = 300
#: Bounds itself, then becomes the reader. Arguments: seconds, bytes, cores.
_READER: Final = """
import os, resource, runpy, sys
seconds, nbytes, cores = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
if cores:
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
sys.argv = ["kernelguard", "--api-mode"]
runpy.run_module("kernelguard", run_name="__main__")
"""


def installed() -> str | None:
    """The version of the reader beside the daemon; None: there is none."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def advise(
    code: bytes,
    *,
    found: str,
    cores: Collection[int] = (),
    limit_s: float = LIMIT_S,
    reader: Sequence[str] | None = None,
) -> Json:
    """The advice on a submission.

    Args:
        code: the source.
        found: its version, as `installed` says.
        cores: where to read; none: anywhere.
        limit_s: how long.
        reader: another program than the package, for tests.

    Returns:
        `tool`, `version`, and either `findings` with `pattern`, `severity`, `evidence`, beside how the reader itself
        would classify them, or `error`.
    """
    about = {"tool": PACKAGE, "version": found}
    arguments = (str(int(limit_s) + 1), str(_MEMORY_BYTES), ",".join(map(str, sorted(cores))))
    try:
        done = subprocess.run(
            [*(reader or (sys.executable, "-I", "-c", _READER)), *arguments],
            input=code,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
        said = json.loads(done.stdout)
        findings = [_finding(entry) for entry in said["matched_patterns"]]
        classification = str(said["classification"])[:_CHARACTERS]
    except subprocess.TimeoutExpired:
        return {**about, "error": f"it did not finish within {limit_s:g} s"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {**about, "error": f"it did not answer as expected: {type(error).__name__}: {error}"[:_CHARACTERS]}
    return {**about, "classification": classification, "findings": findings[:_MOST], "count": len(findings)}


def _finding(entry: Mapping[str, Any]) -> Json:
    return {key: str(entry.get(key, ""))[:_CHARACTERS] for key in ("pattern", "severity", "evidence")}
