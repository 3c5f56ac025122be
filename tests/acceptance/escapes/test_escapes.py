"""Every attempt gets exactly the verdict its file names, leaves nothing, and harms no honest job after it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeAlias

import pytest

from sandbox.host.engine import DockerEngine
from tests.acceptance.escapes.case import GVISOR, PROGRAM, Case, all_cases
from tests.acceptance.escapes.relax import RELAXATIONS
from tests.acceptance.escapes.rig import HARMED, INTERNAL_ERROR, Played, Rig
from tests.acceptance.escapes.table import table
from tests.plugins.live import ROOT
from tests.support.waiting import PATIENCE_S

CASES = all_cases()
MUTANTS = tuple(case for case in CASES if case.relax is not None)
#: What is nobody's fault is tried again, as a daemon would: gVisor's kernel breaks now and then on a crowded machine.
ATTEMPTS = 3
#: Every board of every case, and all of them under gVisor.
_ALL = os.environ.get("KERNEL_RUNNER_TEST_ESCAPES") == "all"
UNDER_GVISOR = ("bomb_memory", "device_nodes", "network_away", "ptrace", "survivor_double_fork")

#: A case, the board, whether its defence is off.
Play: TypeAlias = tuple[Case, str, bool]


class Plays:
    """What became of each selected attempt, by the name of its test."""

    def __init__(self, rig: Rig, wanted: Mapping[str, Play]) -> None:
        self._rig = rig
        self._wanted = wanted
        self._queued: dict[str, Future[Played]] = {}

    def queue_all(self) -> None:
        """Play all of them side by side, from now on."""
        for name in self._wanted:
            self._queue(name)

    def __getitem__(self, name: str) -> Played:
        return self._queue(name).result(PATIENCE_S)

    def _queue(self, name: str) -> Future[Played]:
        if name not in self._queued:
            case, board, relaxed = self._wanted[name]
            self._queued[name] = self._rig.play(case, board, relaxed=relaxed)
        return self._queued[name]


@pytest.fixture(scope="module")
def plays(docker_engine: DockerEngine, eval_python: Path, request: pytest.FixtureRequest) -> Iterator[Plays]:
    """Four slots in one process of tests; a slot in each of several such processes."""
    names = {getattr(getattr(item, "callspec", None), "id", None) for item in request.session.items}
    known: dict[str, Play] = {f"{case.name}-{board}": (case, board, False) for case in CASES for board in _boards(case)}
    known |= {f"{case.name}-without-{case.relax}": (case, case.board, True) for case in MUTANTS}
    worker = getattr(request.config, "workerinput", {}).get("workerid")
    slots, first_core = (4, 0) if worker is None else (1, int(worker.removeprefix("gw")))
    with Rig(engine_url=docker_engine.base_url, eval_python=eval_python, slots=slots, first_core=first_core) as rig:
        made = Plays(rig, {name: play for name, play in known.items() if name in names})
        if worker is None:
            made.queue_all()
        yield made


def _boards(case: Case) -> tuple[str, ...]:
    return tuple(case.verdicts) if _ALL else (case.board,)


@pytest.mark.parametrize(
    ("case", "board"),
    [pytest.param(case, board, id=f"{case.name}-{board}") for case in CASES for board in _boards(case)],
)
def test_an_attempt_gets_its_verdict_and_leaves_nothing(plays: Plays, case: Case, board: str) -> None:
    """Verdict and sentence are those of its file, its containers are gone, the honest job after it is as ever."""
    result = plays[f"{case.name}-{board}"]
    assert result.verdict == case.verdicts[board], result
    assert "BREACH" not in result.output
    if case.error is not None:
        assert re.search(case.error, result.error or ""), result.error
    assert result.left == ()
    assert result.honest_verdict == "accepted"
    assert result.slowdown < HARMED


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.name}-without-{case.relax}") for case in MUTANTS])
def test_an_attempt_succeeds_where_its_defence_is_off(plays: Plays, case: Case) -> None:
    """Without the one defence the same submission gets through and says so: the case above could have failed."""
    result = plays[f"{case.name}-without-{case.relax}"]
    assert result.verdict == case.relaxed, result
    assert result.left == ()


def test_the_suite_is_as_large_as_it_says() -> None:
    """At least 45 attempts, at least 15 of them played without their defence, and no defence without an attempt."""
    assert len(CASES) >= 45
    assert len(MUTANTS) >= 15
    assert {case.relax for case in MUTANTS} == set(RELAXATIONS)


def test_the_table_says_what_the_cases_say() -> None:
    """docs/measurements/escapes.md holds the table that `python -m tests.acceptance.escapes table` prints."""
    page = (ROOT / "docs" / "measurements" / "escapes.md").read_text(encoding="utf-8")
    assert table(CASES) in page, "put in what `python -m tests.acceptance.escapes table` prints"


@pytest.mark.timeout(3600 if _ALL else 1200)
def test_attempts_get_the_verdicts_of_the_table_under_gvisor(docker_engine: DockerEngine, eval_python: Path) -> None:
    """Five attempts, two that gVisor sees differently among them; KERNEL_RUNNER_TEST_ESCAPES=all plays all."""
    if GVISOR not in docker_engine.check().runtimes:
        pytest.skip("the engine has no runtime runsc: install gVisor and tell the engine of it (make test does)")
    chosen = [case for case in CASES if PROGRAM in case.verdicts and (_ALL or case.name in UNDER_GVISOR)]
    assert len(chosen) >= len(UNDER_GVISOR)
    with Rig(engine_url=docker_engine.base_url, eval_python=eval_python, runtime=GVISOR) as rig:
        for _ in range(ATTEMPTS):
            queued = [(case, rig.play(case, PROGRAM)) for case in chosen]
            results = [(case, future.result(PATIENCE_S)) for case, future in queued]
            assert {case.name: (result.left, result.honest_verdict) for case, result in results} == {
                case.name: ((), "accepted") for case in chosen
            }
            wrong = {
                case.name: result
                for case, result in results
                if result.verdict not in case.expected(PROGRAM, runtime=GVISOR)
            }
            assert {result.verdict for result in wrong.values()} <= {INTERNAL_ERROR}, wrong
            chosen = [case for case in chosen if case.name in wrong]
    assert wrong == {}
