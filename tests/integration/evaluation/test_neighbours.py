"""What a candidate or a group does to the next one: nothing; and a good deal in a container that cleans nothing up."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from runner.base.gpu_types import Registry
from runner.evaluation import warm_pool
from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from sandbox.host.engine import DockerEngine
from tests.acceptance.modules.neighbours import attacks, without_cleaning
from tests.acceptance.modules.problems import PROBLEMS, candidate
from tests.support.waiting import PATIENCE_S
from tests.unit import samples

#: A group for each: files, memory, objects of the kernel and processes are in both.
HALVES = (0, 1)
#: In a reference: what the judge's user leaves behind, and what looks for it.
_PLACES: Final = "('/judge/of-reference', '/tmp/of-reference', '/dev/shm/of-reference')"
_LEAVES: Final = f"""
import ctypes, os
for place in {_PLACES}:
    open(place, 'w').close()
ctypes.CDLL(None).shmget(78, 4096, 0o1000 | 0o666)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp('sleep', ['sleep', '86397'])
    os._exit(0)
"""
_LOOKS: Final = f"""
import ctypes, glob, os
def running(path):
    try:
        return b'86397' in open(path, 'rb').read()
    except OSError:
        return False
left = [place for place in {_PLACES} if os.path.exists(place)]
left += ['memory'] if ctypes.CDLL(None).shmget(78, 4096, 0o666) >= 0 else []
left += ['process'] if any(map(running, glob.glob('/proc/[0-9]*/cmdline'))) else []
if left:
    raise RuntimeError(f'met {{left}}')
"""


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


def _run(evaluator: Evaluator, *codes: str, before: str = "", **settings: Any) -> list[tuple[str, str]]:  # noqa: ANN401 any setting
    """Verdict and message of each candidate of a group of the batch; `before`: stands before its reference."""
    group = samples.group(
        *({"id": number, "code": code} for number, code in enumerate(codes)),
        reference=before + PROBLEMS["linear"],
        settings={"timed_calls": 0, "inputs": 2, "timeout_s": 100, **settings},
    )
    rows = evaluator.run(group, samples.SLOT, cancel=threading.Event()).items
    return [(str(row["verdict"]), str(row["message"])) for row in rows]


def _kept(evaluator: Evaluator) -> Any:  # noqa: ANN401 a container
    """The container that waits for the next group of the batch."""
    kept = evaluator._warm_pool._pools[samples.SLOT.name].kept
    assert kept is not None
    return kept.container


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The container of a group waits for the next one however busy the machine is."""
    monkeypatch.setattr(warm_pool, "IDLE_S", PATIENCE_S)


@pytest.mark.usefixtures("patient")
def test_no_candidate_meets_one_of_the_next_group(evaluator: Evaluator) -> None:
    """Two groups of a batch in one container: neither files nor processes nor objects of the kernel."""
    texts = attacks(candidate("linear"))
    for _ in range(2):
        verdicts = dict(zip(texts, _run(evaluator, *texts.values()), strict=True))
        assert {name: verdict for name, (verdict, _) in verdicts.items()} == dict.fromkeys(texts, "accepted"), verdicts
    assert _kept(evaluator).requests == 2


@pytest.mark.usefixtures("patient")
def test_no_reference_meets_one_of_the_next_group(evaluator: Evaluator) -> None:
    """What the judge's user leaves is gone, too: its directory, shared places, memory, processes."""
    good = candidate("linear")
    assert [verdict for verdict, _ in _run(evaluator, good, before=_LEAVES)] == ["accepted"]
    assert [verdict for verdict, _ in _run(evaluator, good, before=_LOOKS)] == ["accepted"]
    assert _kept(evaluator).requests == 2


@pytest.mark.usefixtures("patient")
def test_each_attack_on_the_next_group_works_where_nothing_is_cleaned_up(
    docker_engine: DockerEngine, settings: EvaluationSettings
) -> None:
    """The candidates and the reference of the next group meet what the first one has left."""
    texts, good = attacks(candidate("linear")), candidate("linear")
    with without_cleaning():
        evaluator = Evaluator(docker_engine, Registry.load(), settings)
        try:
            evaluator.prepare([samples.SLOT])
            _run(evaluator, *texts.values())
            verdicts = dict(zip(texts, _run(evaluator, *texts.values()), strict=True))
            _run(evaluator, good, before=_LEAVES)
            ((verdict, message),) = _run(evaluator, good, before=_LOOKS)
        finally:
            evaluator.close()
    assert {name: verdict for name, (verdict, _) in verdicts.items()} == dict.fromkeys(texts, "runtime_error"), verdicts
    assert verdict == "invalid"
    assert all(what in message for what in ("/judge/of", "/tmp/of", "/dev/shm/of", "memory", "process"))


@pytest.mark.usefixtures("patient")
def test_a_container_that_breaks_after_an_earlier_group_costs_no_verdict(
    evaluator: Evaluator, docker_engine: DockerEngine
) -> None:
    """The group has another container; the pool keeps no container of a group with separate ones."""
    good = candidate("linear")
    assert [verdict for verdict, _ in _run(evaluator, good)] == ["accepted"]
    docker_engine._kill(_kept(evaluator).id)
    assert [verdict for verdict, _ in _run(evaluator, good)] == ["accepted"]
    assert _kept(evaluator).requests == 1
    assert [verdict for verdict, _ in _run(evaluator, good, separate_containers=True)] == ["accepted"]
    assert evaluator._warm_pool._pools[samples.SLOT.name].kept is None
