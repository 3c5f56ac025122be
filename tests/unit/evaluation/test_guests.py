"""Kinds of groups that guests bring, and what containers have of guests."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.base.errors import EvaluationError
from runner.evaluation.context import GroupContext
from runner.evaluation.kinds import guests
from sandbox.host.stage import stage
from tests.unit import samples


def test_a_group_of_a_kind_that_no_guest_brings_is_our_fault() -> None:
    """Another host may have it; the sentence names kind and remedy."""
    context = GroupContext(**vars(samples.PLACE), job=samples.group(kind="poem"))
    with pytest.raises(EvaluationError, match=r"kind 'poem'.*no runner/extras/\*\*/kinds/poem.py: install"):
        guests.group(context)


def test_every_kind_that_is_there_is_found() -> None:
    """By its file's name; the jobs of trainers are of one."""
    context = GroupContext(**vars(samples.PLACE), job=samples.group({"id": 1, "code": "x"}, settings={}))
    assert type(guests.group(context)).__module__ == "runner.extras.trainers.kinds.module"


def test_containers_have_what_is_inside_and_nothing_else_of_the_runner(tmp_path: Path) -> None:
    """Neither its commands nor its SQL; and each package on the way, whatever else an image calls `runner`."""
    staged = stage(tmp_path, guests.inside())
    names = {path.relative_to(staged) for path in (staged / "runner").rglob("*.py")}
    folders = {Path(place) for place, path in guests.inside().items() if path.is_dir()}
    assert folders
    outside = {name for name in names if not any(name.is_relative_to(folder) for folder in folders)}
    assert outside == {parent / "__init__.py" for folder in folders for parent in folder.parents[:-1]}
