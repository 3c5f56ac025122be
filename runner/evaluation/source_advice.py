"""Advice on a submission from its source code, where KernelGuard is installed; never a verdict.

Owns the one call of KernelGuard (its documented `--api-mode`: source on stdin, a JSON object on stdout). The source is
hostile, so KernelGuard parses it in a process without a variable or descriptor of the daemon's, with bounds on time,
memory, output, files and processes, if possible on cores that no slot uses.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from runner.base.model import Json

PACKAGE: Final = "kernelguard"
#: Reading a submission takes a fraction of a second.
LIMIT_S: Final = 10.0
_MEMORY_BYTES: Final = 1 << 30
_ANSWER_BYTES: Final = 8 << 20
_MOST: Final = 50
_CHARACTERS: Final = 300
#: Bounds itself before it becomes the reader. Arguments: limits of the kernel by name, cores.
_BOUNDS: Final = """
import json, os, resource, runpy, sys
for name, most in json.loads(sys.argv[1]).items():
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
if sys.argv[2]:
    os.sched_setaffinity(0, {int(core) for core in sys.argv[2].split(",")})
"""
_READER: Final = """
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
    reader: str = _READER,
) -> Json:
    """The advice on a submission.

    Args:
        code: the source.
        found: its version, as `installed` says.
        cores: where to read; none: anywhere.
        limit_s: how long.
        reader: another Python program than the package, for tests.

    Returns:
        `tool`, `version`, and either `findings` with `pattern`, `severity`, `evidence`, beside how the reader itself
        would classify them, or `error`.
    """
    about = {"tool": PACKAGE, "version": found}
    # Every thread counts as a process.
    limits = {"CPU": int(limit_s) + 1, "AS": _MEMORY_BYTES, "FSIZE": _ANSWER_BYTES, "CORE": 0, "NOFILE": 32, "NPROC": 0}
    arguments = (json.dumps(limits), ",".join(map(str, sorted(cores))))
    try:
        # A file, since the limit on files bounds it; a pipe would end in the daemon's memory.
        with tempfile.TemporaryFile() as answer:
            subprocess.run(
                [sys.executable, "-I", "-X", "utf8", "-c", _BOUNDS + reader, *arguments],
                input=code,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                env={},
                timeout=limit_s,
                check=False,
            )
            answer.seek(0)
            said = json.load(answer)
        findings = [_finding(entry) for entry in said["matched_patterns"]]
        classification = str(said["classification"])[:_CHARACTERS]
    except subprocess.TimeoutExpired:
        return {**about, "error": f"it did not finish within {limit_s:g} s"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return {**about, "error": f"it did not answer as expected: {type(error).__name__}: {error}"[:_CHARACTERS]}
    return {**about, "classification": classification, "findings": findings[:_MOST], "count": len(findings)}


def _finding(entry: Mapping[str, Any]) -> Json:
    return {key: str(entry.get(key, ""))[:_CHARACTERS] for key in ("pattern", "severity", "evidence")}
