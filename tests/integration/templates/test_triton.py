"""Triton templates compile for the devices that they are offered on, and are right by Triton's interpreter."""

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
from tests.gpu.bench import Machine, Verdict, judge, verdict_of
from tests.gpu.bench import tasks as tasks_of_the_manifest
from tests.integration.templates.offered import architectures, with_template

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not here; `make test-nightly` installs it"),
]

FOLDERS: Final = with_template("Triton")
#: Every template must compile for these, wherever it is offered.
ALWAYS: Final = ("sm_90", "sm_100", "gfx942", "gfx950")
#: Before a template's code: Triton executes it by numpy. numpy has no bfloat16, so the interpreter holds such numbers
#: as uint16, and its `tl.dot` (Triton 3.7) multiplies these as whole numbers. Here they are widened first.
INTERPRETED: Final = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import numpy
import triton.language
from triton.runtime import interpreter

def _widened(handle):
    if handle.dtype.scalar != triton.language.bfloat16:
        return handle
    bits = handle.data.astype(numpy.uint32) << 16
    return interpreter.TensorHandle(bits.view(numpy.float32), triton.language.float32)

def _dot(self, a, b, *others, _dot=interpreter.InterpreterBuilder.create_dot):
    return _dot(self, _widened(a), _widened(b), *others)

interpreter.InterpreterBuilder.create_dot = _dot
"""


def compiled(directory: Path, names: Sequence[str], cases: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """What the template in a folder launches for the cases, compiled for each architecture."""
    program = [sys.executable, "-m", "tests.integration.templates.triton_compile"]
    done = subprocess.run(
        [*program, str(directory), json.dumps(names), json.dumps(cases)],
        capture_output=True,
        text=True,
        check=False,
        # A cache of its own, so that everything is compiled.
        env={**os.environ, "TRITON_CACHE_DIR": str(directory / "cache")},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_template_compiles_for_every_device_that_it_is_offered_on(
    folder: TaskFolder, laid_out: Callable[[TaskFolder, str], Path]
) -> None:
    """With the official shapes of the first test, and with the CPU's, which are odd. It fits into shared memory."""
    from tests.integration.templates.triton_compile import SHARED_BYTES

    offered = [name if name.startswith("gfx") else f"sm_{name.rstrip('af')}" for name in architectures(folder)]
    names = list(dict.fromkeys((*ALWAYS, *offered)))
    cases = [dict(case) for case in (*(folder.task.tests or ())[:1], *(folder.task.cases_for("CPU").tests or ()))]
    found = compiled(laid_out(folder, folder.templates["Triton"]), names, cases)
    assert {line["architecture"] for line in found} == set(names)
    for line in found:
        assert line["binary_bytes"] > 0, line
        assert line["shared_bytes"] <= SHARED_BYTES[line["architecture"]], line


def interpreted(name: str, code: str) -> Verdict:
    """What the judge says to a template whose kernels Triton's interpreter executes, on the small cases."""
    task = next(task for task in tasks_of_the_manifest() if task.name == name)
    machine = Machine(device="cpu", name="CPU", count=0, memory_bytes=4 << 30)
    cases = (*task.small_tests, *task.small_benchmarks)
    return verdict_of(judge(task, INTERPRETED + code, {"test": cases}, machine, ranks=task.small_ranks))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_template_is_right_by_the_interpreter(folder: TaskFolder) -> None:
    """The judge accepts it on small cases, in a process each, with as many ranks as the task has."""
    found = interpreted(folder.name, folder.templates["Triton"])
    assert found.verdict == "accepted", found.message


def test_a_wrong_kernel_is_refused() -> None:
    """The interpreter's numbers reach the judge."""
    right = next(folder for folder in FOLDERS if folder.name == "vectoradd").templates["Triton"]
    wrong = right.replace("tl.load(b + offsets", "2 * tl.load(b + offsets")
    assert wrong != right
    assert interpreted("vectoradd", wrong).verdict == "wrong_answer"


def test_a_kernel_that_does_not_compile_fails(laid_out: Callable[[TaskFolder, str], Path]) -> None:
    """With Triton's own message."""
    folder = next(folder for folder in FOLDERS if folder.name == "vectoradd")
    wrong = folder.templates["Triton"].replace("tl.program_id(0)", "tl.no_such_thing(0)")
    with pytest.raises(AssertionError, match="no_such_thing"):
        compiled(laid_out(folder, wrong), ["sm_90"], [{"size": 127, "seed": 1}])
