"""Commands in surroundings where something is missing that every process seems to have."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.integration.cli.conftest import evaluation_python
from tests.plugins.live import ROOT
from tests.support.waiting import PATIENCE_S

__all__ = ["evaluation_python"]

#: What a shell does before the command. A namespace has a user without an entry in /etc/passwd, as a container may.
SURROUNDINGS: Final = {
    "no working directory": "mkdir gone && cd gone && rmdir ../gone && exec",
    "no home directory": "unset HOME && exec unshare --user --map-user=12345",
    "no temporary folder": "ulimit -f 0 && exec",
    "no room for temporary files": "ulimit -f 1 && exec",
}
#: `task check` writes temporary files.
COMMANDS: Final = ("mcp", "gpu detect", f"task check {ROOT / 'tasks' / 'problems' / 'identity'}")


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        (missing, command)
        for missing in SURROUNDINGS
        for command in COMMANDS
        if "temp" in missing or "task" not in command
    ],
)
def test_a_command_says_what_is_missing(tmp_path: Path, evaluation_python: Path, missing: str, command: str) -> None:
    """No traceback: it works, or one sentence says what to do."""
    ended = subprocess.run(
        ["sh", "-c", f"{SURROUNDINGS[missing]} {shlex.quote(sys.executable)} -Bm runner.cli {command}"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "KERNEL_RUNNER_EVAL_PYTHON": str(evaluation_python),
        },
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    said = [line for line in ended.stderr.splitlines() if line]
    if "task" in command:
        assert ended.returncode == 3
        assert said[-1].startswith("kernel-runner: cannot write: "), said
        assert "Traceback" not in ended.stderr
    else:
        assert (ended.returncode, said) == (0, [])
