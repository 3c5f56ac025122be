"""Judges a group of modules with processes of this machine, without a container: for trying out and for tests.

As in `local`, all processes have the caller's user, so a candidate could interfere with the judge. Each candidate has
a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.protocol import StepResult

from .judge.modules.group import Group, GroupError, Result, failed_results
from .judge.modules.request import payload_of
from .local import JudgeFailed, Pair, Start


def evaluate(
    group: Mapping[str, Any],
    *,
    start: Start | None = None,
    device: str = "cpu",
    memory_bytes: int = 1 << 30,
) -> list[dict[str, Any]]:
    """Judge a group in its JSON form (docs/trainers.md): one result for each candidate, in the group's order.

    `start`: None gives each process a new interpreter. `device`, `memory_bytes`: as in JudgeRequest.
    """
    try:
        parsed = Group.from_message(group)
    except GroupError as error:
        return failed_results(group, "invalid", str(error))
    payload = payload_of(group, device=device, memory_bytes=memory_bytes)
    frames: list[dict[str, Any]] = []
    verdict, lost = "internal_error", "the judge ended without a result for this candidate"
    try:
        with Pair(start=start, successive=True) as pair:
            report = pair.run(payload, on_frame=frames.append)
        if report.author_exit is not None:
            verdict, lost = "invalid", str(report.author_exit)
    except JudgeFailed as error:
        lost = str(error)[-2000:]
    found = results_of(StepResult.from_message(frame) for frame in frames if frame["type"] == "step")
    return [
        found.get(candidate.id) or Result(id=candidate.id, verdict=verdict, message=lost).to_message()
        for candidate in parsed.candidates
    ]


def results_of(steps: Iterable[StepResult]) -> dict[int, dict[str, Any]]:
    """The results that a judge has reported, by candidate."""
    rows = [step.judged.details.get("module") for step in steps if step.judged is not None]
    return {row["id"]: row for row in rows if isinstance(row, dict)}
