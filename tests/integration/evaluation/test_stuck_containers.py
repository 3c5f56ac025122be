"""An engine that does not kill, remove or start: the slot is out, and comes back when the engine obeys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from runner.base.config import Config
from runner.base.errors import EvaluationError
from runner.base.gpu_types import Registry
from runner.base.model import Verdict
from runner.devices.quarantine import Quarantine
from runner.evaluation.evaluate import Evaluator
from sandbox.errors import EngineRefused
from sandbox.host import engine as engine_module
from sandbox.host.engine import DockerEngine
from tests.integration.evaluation.conftest import RIGHT, evaluate
from tests.integration.evaluation.test_evaluator import ENDLESS, job
from tests.integration.sandbox.engine_proxy import Answer, Call, EngineProxy
from tests.support.waiting import PATIENCE_S, wait_until
from tests.unit import samples


class Disobedience:
    """Says no, or nothing, to kill and remove while it is on; and no to starts."""

    def __init__(self) -> None:
        self.obeys = threading.Event()
        self.silent = False
        self.no_start = False

    def __call__(self, call: Call) -> Answer | None:
        """Answer in the engine's place, if it is about the end of a container."""
        removal = call.method == "DELETE" and call.path.startswith("/containers/")
        if self.no_start and "/start" in call.path:
            return Answer.error("OCI runtime create failed: no space left on device")
        if self.obeys.is_set() or not (removal or "/kill" in call.path):
            return None
        if self.silent:
            # As a kill that waits for a driver does.
            self.obeys.wait(PATIENCE_S)
            return None
        return Answer.error("tried to kill container, but did not receive an exit event")


@pytest.fixture
def disobedience() -> Disobedience:
    """On from the beginning."""
    return Disobedience()


@pytest.fixture
def quarantine() -> Quarantine:
    """One that tries often."""
    return Quarantine(retry_s=0.1)


@pytest.fixture
def stubborn(
    docker_engine: DockerEngine,
    settings: Config,
    disobedience: Disobedience,
    quarantine: Quarantine,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Evaluator]:
    """An evaluator behind such an engine, whose calls are given up after a second, for as long as it does not obey."""
    proxy = EngineProxy(docker_engine.base_url, before=disobedience)
    # With the fixture's label, so that a failing test leaves nothing either.
    engine = DockerEngine(proxy.url, owner=docker_engine.owner)

    def bounded(whole: Callable[[str], None]) -> Callable[[str], None]:
        def call(container_id: str) -> None:
            # A busy engine that obeys may take longer than a second.
            patience_s = PATIENCE_S if disobedience.obeys.is_set() else 1.0
            monkeypatch.setattr(engine_module, "REMOVE_TIMEOUT_S", patience_s)
            whole(container_id)

        return call

    monkeypatch.setattr(engine, "_remove", bounded(engine._remove))
    monkeypatch.setattr(engine, "_kill", bounded(engine._kill))
    made = Evaluator(
        engine, Registry.load(), settings.model_copy(update={"warm_containers": 0, "max_run_s": 3.0}), quarantine
    )
    disobedience.obeys.set()
    made.prepare([samples.SLOT])
    disobedience.obeys.clear()
    yield made
    disobedience.obeys.set()
    made.close()
    engine.close()
    proxy.close()


def test_what_cannot_be_removed_costs_its_slot_and_no_verdict(
    stubborn: Evaluator,
    settings: Config,
    disobedience: Disobedience,
    quarantine: Quarantine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time limit, not an internal error that would go on to the next host; the slot is back once the engine obeys.

    An engine that says no, one that says nothing, and one that also fails at the start.
    """
    for silent in (False, True):
        disobedience.silent = silent
        result = evaluate(stubborn, job(ENDLESS))
        assert result.verdict is Verdict.TIME_LIMIT
        (reason,) = quarantine.reasons().values()
        assert "could not be removed" in reason
        disobedience.obeys.set()
        wait_until(lambda: not quarantine.reasons(), "the slot is used again")
        disobedience.obeys.clear()

    def broken(*_: object) -> None:
        raise EngineRefused("another container than was asked for")

    disobedience.silent = False
    with monkeypatch.context() as patch:
        patch.setattr(engine_module, "_attest", broken)
        with pytest.raises(EvaluationError, match="another container than was asked for"):
            evaluate(stubborn, job(RIGHT))
    assert set(quarantine.reasons()) == {samples.SLOT.name}
    disobedience.obeys.set()
    wait_until(lambda: not quarantine.reasons(), "the slot is used again")

    monkeypatch.setattr(stubborn, "_config", settings.model_copy(update={"warm_containers": 0}))
    assert evaluate(stubborn, job(RIGHT)).verdict is Verdict.ACCEPTED


def test_a_slot_on_which_nothing_starts_is_out_until_a_probe_runs_there(
    stubborn: Evaluator, disobedience: Disobedience, quarantine: Quarantine
) -> None:
    """Else one job after the other would use up its attempts there. A slot that works is not out."""
    never = threading.Event()
    disobedience.obeys.set()
    stubborn.try_out(samples.SLOT, cancel=never)
    assert quarantine.reasons() == {}
    disobedience.no_start = True
    with pytest.raises(EvaluationError, match="no space left on device"):
        evaluate(stubborn, job(RIGHT))
    for _ in range(2):
        stubborn.try_out(samples.SLOT, cancel=never)
        ((slot, reason),) = quarantine.reasons().items()
        assert slot == samples.SLOT.name
        assert reason.startswith("nothing runs there: container ")
        assert reason.count("no space left on device") == 1
    disobedience.no_start = False
    wait_until(lambda: not quarantine.reasons(), "the slot is used again")
