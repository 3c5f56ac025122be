"""Seeds of secret runs: taken by every usual generator, and tried by `task check`."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runner.base.gpu_types import Registry
from runner.base.model import Mode
from runner.cli.finding import Finding, Mark
from runner.extras.boards.commands.task_check import rehearse
from runner.task_format import load
from tasks.harness.judge.cases import combine
from tests.acceptance.judging.asking import asked
from tests.acceptance.judging.forked_judges import ForkedJudges

TASK = Path(__file__).parent / "cases" / "numpy_seed"
SEEDING = "np.random.seed(seed)"
LARGEST_SECRET = (1 << 31) - 1


def checked(folder: Path, python: Path) -> dict[str, Finding]:
    """What `task check` says about a folder's code."""
    said = rehearse(load(folder), folder, Registry.load().get("CPU"), python)
    return {finding.name: finding for finding in said if isinstance(finding, Finding)}


def with_seeding(folder: Path, seeding: str) -> Path:
    """A copy of the task that makes its inputs with another statement."""
    shutil.copytree(TASK, folder)
    reference = folder / "reference.py"
    reference.write_text(reference.read_text().replace(SEEDING, seeding))
    return folder


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, LARGEST_SECRET))
def test_every_generator_takes_a_secret_seed(case_seed: int, secret: int) -> None:
    """Whatever the case's own seed is; a seed that KernelBot's rule keeps below 2**32 is KernelBot's."""
    seed = combine(case_seed, secret)
    np.random.RandomState(seed)
    np.random.default_rng(seed)
    torch.Generator().manual_seed(seed)
    random.seed(seed)
    by_rule = case_seed + (case_seed + secret) * (case_seed + secret + 1) // 2
    assert seed == by_rule or not 0 <= by_rule < 1 << 32


@given(st.integers(0, 1000), st.integers(0, 90_000))
def test_small_seeds_are_as_in_kernelbot(case_seed: int, secret: int) -> None:
    """A task with a small `seed` of its own has the same inputs in both."""
    assert combine(case_seed, secret) == case_seed + (case_seed + secret) * (case_seed + secret + 1) // 2


@pytest.mark.parametrize(
    "seeding",
    [
        SEEDING,
        "np.random.default_rng(seed)",
        "torch.manual_seed(seed)",
        "torch.Generator().manual_seed(seed * 1000)",
        "__import__('random').seed(seed)",
    ],
)
def test_a_secret_run_is_judged(processes: ForkedJudges, tmp_path: Path, seeding: str) -> None:
    """The judge accepts a right submission under the largest secret seed, and a large seed of the case."""
    task = load(with_seeding(tmp_path / "task", seeding)).task
    task = replace(task, tests=(*task.tests, {"size": 9, "seed": 2**63 - 1}))
    request = asked(task, b"def custom_kernel(data):\n    return data + data\n", Mode.TEST)
    assert processes.verdict(replace(request, seed=LARGEST_SECRET)) == ("accepted", None)


@pytest.mark.parametrize(
    "seeding",
    [
        "np.random.seed(seed + 1)",
        "np.random.default_rng(99 - seed)",
        "torch.manual_seed(seed << 40)",
        "torch.full((), seed, dtype=torch.int32)",
        "np.zeros(seed)",
    ],
)
def test_a_task_that_takes_no_secret_seed_fails_its_check(warm_eval_python: Path, tmp_path: Path, seeding: str) -> None:
    """Its public seeds work; the finding names the case, the seed and what to do."""
    finding = checked(with_seeding(tmp_path / "task", seeding), warm_eval_python)["case size: 100; seed: 7"]
    assert finding.mark is Mark.FAILED
    assert finding.fact.startswith("with seed 4294967295, which a secret run may have: the task's generate_input")
    assert "% 2**32" in (finding.remedy or "")


def test_the_reported_task_passes(warm_eval_python: Path) -> None:
    """The folder as it was reported."""
    found = checked(TASK, warm_eval_python)
    assert found["cases"].fact == "all 2 generate, also with the largest secret seed"
    assert all(finding.mark is not Mark.FAILED for finding in found.values())
