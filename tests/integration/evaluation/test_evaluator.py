"""The evaluator on a real engine: warm containers, cancellation, an engine that is away."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner.base.config import Config
from runner.base.errors import CancelledByRequest, EngineUnavailableError, EvaluationError
from runner.base.model import Job, Verdict
from runner.evaluation.evaluate import Evaluator
from sandbox.host.engine import Container, DockerEngine
from sandbox.spec import SandboxSpec
from tests.integration.evaluation.conftest import RIGHT, VECTORADD, evaluate, evaluator_with
from tests.support.waiting import PATIENCE_S, wait_until
from tests.unit import samples

ENDLESS = b"def custom_kernel(data):\n    while True:\n        pass\n"


def job(code: bytes) -> Job:
    """A test job on vectoradd."""
    return samples.job_on(VECTORADD, code)


def waiting(evaluator: Evaluator) -> str:
    """The id of the container that waits, once one does."""
    (first, *_) = wait_until(lambda: evaluator._warm_pool._pools[samples.SLOT.name].containers, "a container waits")
    return first.container.id


def test_a_warm_container_serves_one_job_and_is_replaced(evaluator: Evaluator, docker_engine: DockerEngine) -> None:
    """The job runs in the container that waited; afterwards that one is gone and another waits; closing removes it."""
    first = waiting(evaluator)
    assert evaluate(evaluator, job(RIGHT)).verdict is Verdict.ACCEPTED
    second = waiting(evaluator)
    assert second != first
    evaluator.close()
    assert docker_engine.reap() == 0


def test_a_result_is_known_while_its_container_is_removed_and_the_slot_is_free_after_that(
    shared_evaluator: Evaluator, docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine takes its time over a removal; one that had to be killed goes first."""
    order: list[str] = []
    remove, release = docker_engine._remove, shared_evaluator._warm_pool.release

    def removed(container_id: str) -> None:
        remove(container_id)
        order.append("removed")

    def released(slot: str, spec: SandboxSpec) -> None:
        order.append("free")
        release(slot, spec)

    monkeypatch.setattr(docker_engine, "_remove", removed)
    monkeypatch.setattr(shared_evaluator._warm_pool, "release", released)
    with shared_evaluator.evaluate(job(RIGHT), samples.SLOT, cancel=threading.Event()) as result:
        assert result.verdict is Verdict.ACCEPTED
        order.append("known")
    assert order == ["known", "removed", "free"]
    waiting(shared_evaluator)
    order.clear()
    cancel = threading.Event()
    with pytest.raises(CancelledByRequest):
        shared_evaluator.run(job(ENDLESS), samples.SLOT, cancel=cancel, on_progress=lambda _: cancel.set())
    assert order == ["removed", "free"]


def test_the_next_container_is_started_before_the_last_one_is_removed(
    shared_evaluator: Evaluator, docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal waits for that start here; without it the slot would never become free."""
    first, begun, in_time = waiting(shared_evaluator), threading.Event(), []
    remove, start = docker_engine._remove, docker_engine.start

    def started(spec: SandboxSpec, **options: Callable[[], None]) -> Container:
        begun.set()
        return start(spec, **options)

    def removed(container_id: str) -> None:
        if container_id == first:
            in_time.append(begun.wait(PATIENCE_S))
        remove(container_id)

    monkeypatch.setattr(docker_engine, "start", started)
    monkeypatch.setattr(docker_engine, "_remove", removed)
    assert evaluate(shared_evaluator, job(RIGHT)).verdict is Verdict.ACCEPTED
    assert in_time == [True]
    waiting(shared_evaluator)


def test_containers_import_on_cores_that_no_slot_uses(
    docker_engine: DockerEngine, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job runs in one of them, and its core is the slot's."""
    own, other, *_ = sorted(os.sched_getaffinity(0))
    slot = replace(samples.SLOT, cpus=(own,))
    start, imported = docker_engine.start, []

    def started(spec: SandboxSpec, **options: Callable[[], None]) -> Container:
        imported.append(spec.import_cpus)
        return start(spec, **options)

    monkeypatch.setattr(docker_engine, "start", started)
    with evaluator_with(docker_engine, settings, [slot]) as evaluator:
        waiting(evaluator)
        result = evaluate(evaluator, job(RIGHT), slot)
    assert result.verdict is Verdict.ACCEPTED
    # The probe's is started for itself.
    assert imported[:2] == [(), (other,)]


def test_a_warm_container_that_died_costs_no_verdict(shared_evaluator: Evaluator, docker_engine: DockerEngine) -> None:
    """It is found dead when its job comes, and the job runs in a fresh one."""
    docker_engine._kill(waiting(shared_evaluator))
    result = evaluate(shared_evaluator, job(RIGHT))
    assert result.verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("gone", ["image", "stage"])
def test_what_containers_are_made_of_is_made_anew(settings: Config, docker_engine: DockerEngine, gone: str) -> None:
    """An administrator who prunes images or empties the state directory costs one attempt, not every job from then."""
    with evaluator_with(docker_engine, settings, [samples.SLOT], warm_containers=0) as evaluator:
        evaluator.check()
        if gone == "image":
            # The real one is also that of the tests beside this.
            environment = evaluator._environments["CPU"]
            evaluator._environments["CPU"] = replace(environment, image=f"sha256:{'0' * 64}")
        else:
            shutil.rmtree(settings.state_dir / "stage")
        with pytest.raises(EvaluationError):
            evaluate(evaluator, job(RIGHT))
        evaluator.check()
        assert evaluate(evaluator, job(RIGHT)).verdict is Verdict.ACCEPTED


def test_a_cancelled_run_ends_and_its_container_with_it(shared_evaluator: Evaluator) -> None:
    """Cancellation is heard while the submission loops; the slot is free for the next."""
    cancel = threading.Event()
    with pytest.raises(CancelledByRequest):
        shared_evaluator.run(job(ENDLESS), samples.SLOT, cancel=cancel, on_progress=lambda _: cancel.set())
    assert evaluate(shared_evaluator, job(RIGHT)).verdict is Verdict.ACCEPTED


def test_a_job_that_is_cancelled_while_its_container_starts_does_not_wait_for_it(
    evaluator: Evaluator, docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine takes its time; the cancellation is heard meanwhile, and no other container is started for the job."""
    begun, go, started = threading.Event(), threading.Event(), []
    start = docker_engine.start

    def slow(spec: SandboxSpec, **options: Callable[[], None]) -> Container:
        started.append(spec)
        begun.set()
        assert go.wait(PATIENCE_S)
        return start(spec, **options)

    waiting(evaluator)
    monkeypatch.setattr(docker_engine, "start", slow)
    assert evaluate(evaluator, job(RIGHT)).verdict is Verdict.ACCEPTED
    assert begun.wait(PATIENCE_S)
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    with pytest.raises(CancelledByRequest):
        evaluator.run(job(RIGHT), samples.SLOT, cancel=cancel)
    assert len(started) == 1
    go.set()


def test_an_engine_that_is_away_is_our_fault(settings: Config, state_dir: Path) -> None:
    """No verdict: the job will be retried, and the sentence names the engine."""
    engine = DockerEngine(f"unix://{state_dir}/none.sock", owner="test")
    with (
        evaluator_with(engine, settings) as lost,
        pytest.raises(EngineUnavailableError, match=r"none\.sock"),
    ):
        evaluate(lost, job(RIGHT))


def test_code_that_is_no_text_is_invalid(shared_evaluator: Evaluator) -> None:
    """KernelBot's own rows may hold any bytes; nothing is run for such a one."""
    result = evaluate(shared_evaluator, job(b"x = '\xff'\n"))
    assert result.verdict is Verdict.INVALID
    assert "0xff" in (result.error or "")
