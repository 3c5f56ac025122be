"""CuTe templates compile for the devices that they are offered on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from runner.task_format.model import TaskFolder
from tests.integration.templates.offered import architectures, with_template

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("cutlass") is None, reason="CUTLASS is not here; `make test-nightly` installs it"),
]

FOLDERS: Final = with_template("CuteDSL")


def compiled(directory: Path, architecture: str, cases: Sequence[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Compile what the template in a folder compiles for the cases."""
    return subprocess.run(
        [sys.executable, "-m", "tests.integration.templates.cute_compile", str(directory), json.dumps(cases)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CUTE_DSL_ARCH": f"sm_{architecture}", "CUTE_DSL_DISABLE_FILE_CACHING": "1"},
    )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_template_compiles(folder: TaskFolder, laid_out: Callable[[TaskFolder, str], Path]) -> None:
    """With the official shapes of the first test, for every architecture of the types that the task is offered on."""
    directory = laid_out(folder, folder.templates["CuteDSL"])
    for architecture in architectures(folder):
        done = compiled(directory, architecture, [dict(case) for case in (folder.task.tests or ())[:1]])
        assert done.returncode == 0, f"{architecture}: {done.stderr[-4000:]}"
        assert done.stdout, "the template compiled nothing"


def test_a_kernel_that_does_not_compile_fails(laid_out: Callable[[TaskFolder, str], Path]) -> None:
    """With the library's message."""
    folder = FOLDERS[0]
    wrong = folder.templates["CuteDSL"].replace("cute.arch.thread_idx()", "cute.arch.no_such_thing()")
    done = compiled(laid_out(folder, wrong), "90a", [dict(case) for case in (folder.task.tests or ())[:1]])
    assert done.returncode != 0
    assert "no_such_thing" in done.stderr + done.stdout
