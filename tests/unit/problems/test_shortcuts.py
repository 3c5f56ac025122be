"""The shipped problems invite no shortcut that `task check` knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.base.gpu_types import Registry
from runner.cli.finding import Finding, Mark
from runner.extras.boards.commands.task_check import rehearse
from runner.task_format import load_folder
from tests.support.warm_python import warm_python
from tests.unit.problems.oracle import NAMES, TASKS


@pytest.fixture(scope="module")
def evaluation_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The evaluation environment's interpreter, with torch imported."""
    root = Path(__file__).resolve().parents[3]
    python = Path(os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(root / ".venv-eval" / "bin" / "python")))
    with warm_python(python, tmp_path_factory.mktemp("python")) as warm:
        yield warm


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_task_invites_no_shortcut(evaluation_python: Path, name: str) -> None:
    """Nothing is warned of, from unread inputs to digits; solutions and templates have tests of their own."""
    folder = replace(load_folder(TASKS / name), templates={})
    findings = rehearse(folder, TASKS / name / "task.yml", Registry.load().get("CPU"), evaluation_python)
    bad = [each for each in findings if isinstance(each, Finding) and each.mark in (Mark.WARNING, Mark.FAILED)]
    assert [each for each in bad if each.name != "solutions"] == []
