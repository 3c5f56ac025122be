"""Kinds of jobs that guests bring."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runner.base.errors import EvaluationError
from runner.evaluation.kinds import guests


@pytest.mark.parametrize("kind", ["nothing", "validation", "__init__"])
def test_a_group_that_no_guest_evaluates_is_no_verdict(kind: str) -> None:
    """A file of this name that has no groups is no kind of them."""
    context: Any = SimpleNamespace(job=SimpleNamespace(id=7, task={"kind": kind}))
    with pytest.raises(EvaluationError, match=rf"job 7 is a group of kind '{kind}', .*kinds/{kind}\.py"):
        guests.group(context)
