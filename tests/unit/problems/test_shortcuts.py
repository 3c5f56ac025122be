"""The shipped problems invite no shortcut that `task check` knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.base.gpu_types import Registry
from runner.cli.finding import Finding, Mark
from runner.extras.boards.commands.task_check import rehearse
from runner.task_format import load_folder
from tests.unit.problems.oracle import NAMES, TASKS


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_task_invites_no_shortcut(warm_eval_python: Path, name: str) -> None:
    """Nothing is warned of, from unread inputs to digits; solutions and templates have tests of their own."""
    folder = replace(load_folder(TASKS / name), templates={})
    findings = rehearse(folder, TASKS / name / "task.yml", Registry.load().get("CPU"), warm_eval_python)
    bad = [each for each in findings if isinstance(each, Finding) and each.mark in (Mark.WARNING, Mark.FAILED)]
    assert [each for each in bad if each.name != "solutions"] == []
