"""Every attempt gets exactly the verdict its file names, leaves nothing, and harms no honest job after it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest

from sandbox.engine import DockerEngine
from tests.acceptance.escapes.case import Case, all_cases
from tests.acceptance.escapes.relax import RELAXATIONS
from tests.acceptance.escapes.rig import Played, Rig

CASES = all_cases()
MUTANTS = tuple(case for case in CASES if case.relax is not None)
#: A slot that is still busy with somebody else's work is slower than this; a loaded machine is not.
HARMED = 5.0
PATIENCE_S = 280


@pytest.fixture(scope="module")
def rig(docker_engine: DockerEngine, eval_python: Path) -> Iterator[Rig]:
    """The evaluator on four slots."""
    with Rig(engine_url=docker_engine.base_url, eval_python=eval_python) as made:
        yield made


@pytest.fixture(scope="module")
def played(rig: Rig, request: pytest.FixtureRequest) -> Mapping[str, Future[Played]]:
    """The selected cases, all queued at once; KERNEL_RUNNER_TEST_ESCAPES=all adds the other boards."""
    wanted = {
        item.callspec.id
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    found: dict[str, Future[Played]] = {}
    for case in CASES:
        for board in _boards(case):
            if f"{case.name}-{board}" in wanted:
                found[f"{case.name}-{board}"] = rig.play(case, board)
    for case in MUTANTS:
        if f"{case.name}-without-{case.relax}" in wanted:
            found[f"{case.name}-without-{case.relax}"] = rig.play(case, case.board, relaxed=True)
    return found


def _boards(case: Case) -> tuple[str, ...]:
    return tuple(case.verdicts) if os.environ.get("KERNEL_RUNNER_TEST_ESCAPES") == "all" else (case.board,)


@pytest.mark.parametrize(
    ("case", "board"),
    [pytest.param(case, board, id=f"{case.name}-{board}") for case in CASES for board in _boards(case)],
)
def test_an_attempt_gets_its_verdict_and_leaves_nothing(
    played: Mapping[str, Future[Played]], case: Case, board: str
) -> None:
    """Verdict and sentence are those of its file, its containers are gone, the honest job after it is as ever."""
    result = played[f"{case.name}-{board}"].result(PATIENCE_S)
    assert result.verdict == case.verdicts[board], result
    assert "BREACH" not in result.output
    if case.error is not None:
        assert re.search(case.error, result.error or ""), result.error
    assert result.left == ()
    assert result.honest_verdict == "accepted"
    assert result.slowdown < HARMED


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.name}-without-{case.relax}") for case in MUTANTS])
def test_an_attempt_succeeds_where_its_defence_is_off(played: Mapping[str, Future[Played]], case: Case) -> None:
    """Without the one defence the same submission gets through and says so: the case above could have failed."""
    result = played[f"{case.name}-without-{case.relax}"].result(PATIENCE_S)
    assert result.verdict == case.relaxed, result
    assert result.left == ()


def test_the_suite_is_as_large_as_it_says() -> None:
    """At least 45 attempts, at least 15 of them played without their defence, and no defence without an attempt."""
    assert len(CASES) >= 45
    assert len(MUTANTS) >= 15
    assert {case.relax for case in MUTANTS} == set(RELAXATIONS)
