"""What one candidate of a group does to the next: nothing; and a good deal in a container that cleans nothing up."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from runner.base.gpu_types import Registry
from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from sandbox.host.engine import DockerEngine
from tests.acceptance.modules.neighbours import attacks, without_cleaning
from tests.acceptance.modules.problems import PROBLEMS, candidate
from tests.unit import samples

#: A group for each: files, memory, objects of the kernel and processes are in both.
HALVES = (0, 1)


def _verdicts(evaluator: Evaluator, half: int) -> Mapping[str, list[str]]:
    """The verdicts of the two candidates of each attack of a half, sorted."""
    part = list(attacks(candidate("linear")).items())[half :: len(HALVES)]
    group = samples.group(
        *({"id": number, "code": part[number // 2][1]} for number in range(2 * len(part))),
        reference=PROBLEMS["linear"],
        settings={"timed_calls": 0, "inputs": 2, "timeout_s": 100},
    )
    rows = evaluator.run(group, samples.SLOT, cancel=threading.Event()).items
    return {
        name: sorted(str(row["verdict"]) for row in rows[2 * number : 2 * number + 2])
        for number, (name, _) in enumerate(part)
    }


@pytest.mark.parametrize("half", HALVES)
def test_no_candidate_meets_another(evaluator: Evaluator, half: int) -> None:
    """Neither files nor processes nor objects of the kernel."""
    found = _verdicts(evaluator, half)
    assert len(found) >= 6
    assert found == {name: ["accepted", "accepted"] for name in found}


def test_each_attack_works_where_nothing_is_cleaned_up(
    docker_engine: DockerEngine, settings: EvaluationSettings
) -> None:
    """The second candidate meets what the first has left, or is killed by it."""
    with without_cleaning():
        evaluator = Evaluator(docker_engine, Registry.load(), replace(settings, warm_containers=0))
        try:
            evaluator.prepare([samples.SLOT])
            found = {name: verdicts for half in HALVES for name, verdicts in _verdicts(evaluator, half).items()}
        finally:
            evaluator.close()
    assert found == {name: ["accepted", "runtime_error"] for name in found}
