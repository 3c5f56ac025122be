"""The engine itself is killed and started again, in the middle of a run: an engine of the test's own."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.devices.quarantine import Quarantine
from runner.evaluation.leftovers import remove
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Ending
from tests.chaos.dockerd import Dockerd
from tests.integration.sandbox.conftest import Workshop, containers
from tests.support.waiting import wait_until


@pytest.fixture
def own_engine() -> Iterator[Dockerd]:
    """A running engine for this test alone."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("starting an engine needs root and dockerd")
    with Dockerd() as made:
        yield made


def test_an_engine_that_dies_costs_a_retry_and_no_restart(
    own_engine: Dockerd, workshop: Workshop, eval_python: Path
) -> None:
    """Killed, and stopped in order, in the middle of a run: no verdict, the slot is out until the engine is back.

    Afterwards the same object starts containers again, and what the dead engine left is gone.
    """
    engine = DockerEngine(own_engine.url, owner="tests-restart")
    spec = replace(workshop.spec(), image=engine.ensure_host_root(HostRoot(eval_python)))
    sleep = StepsRequest(files={}, steps=(Step(name="test", argv=("/bin/sleep", "100"), timeout_s=100),))
    quick = StepsRequest(files={}, steps=(Step(name="test", argv=("/bin/true",)),))
    quarantine = Quarantine(retry_s=0.2)
    for kill in (True, False):
        other = engine.start(spec)
        container = engine.start(spec)
        report = container.run(
            sleep, on_progress=lambda *_, kill=kill: own_engine.stop(kill=kill), cancel=threading.Event()
        )
        assert report.outcome.ending is Ending.DIED
        assert report.ok is None
        for each in (container, other):
            remove(each, "cpu0", quarantine)
        assert set(quarantine.reasons()) == {"cpu0"}
        own_engine.start()
        wait_until(lambda: not quarantine.reasons(), "the slot is used again")
        with engine.start(spec) as container:
            assert container.run(quick, on_progress=None, cancel=threading.Event()).ok
        engine.reap()
        assert not containers(engine, "tests-restart")
    quarantine.close()
    engine.close()
