"""References and copies of them, and what judges say of the copies."""

from __future__ import annotations

from typing import Any

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.modules.problems import module
from tests.support.local_modules import evaluate, group_of


def pair(forward: str, init: str = "", *, inputs: str = "[torch.randn(8, 16)]", pre: str = "") -> tuple[str, str]:
    """A reference, and its copy as a candidate; statements are separated by newlines."""
    reference, copy = (module(name, forward, init, pre=pre) for name in ("Model", "ModelNew"))
    return f"{reference}\ndef get_inputs():\n    return {inputs}\n", copy


def copy_of(reference: str) -> str:
    """A reference's own text as a candidate."""
    return reference.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


def judged(
    processes: ForkedJudges,
    reference: str,
    *candidates: str,
    memory_bytes: int = 1 << 30,
    **settings: Any,  # noqa: ANN401 any setting
) -> list[dict[str, Any]]:
    """The results of a group."""
    given = {"timeout_s": 200.0, "timed_calls": 5, "inputs": 3, **settings}
    return evaluate(group_of(reference, *candidates, **given), start=processes.start, memory_bytes=memory_bytes)
