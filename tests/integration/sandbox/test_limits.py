"""Hostile programs against the limits, in real containers: each ends, is told apart, and the container reports on."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from sandbox.host import container as container_module
from sandbox.protocol import Step
from sandbox.spec import Ending
from tests.integration.sandbox.conftest import QUICK, SLEEP, Workshop, converse


def test_the_wall_limit_kills_the_container(workshop: Workshop) -> None:
    """A step whose own timeout is longer than the container's limit ends with the container."""
    report = workshop.run(workshop.spec(wall_s=1.0), SLEEP)
    assert report.outcome.ending is Ending.DEADLINE
    assert report.ok is None
    # Killed, or init saw the line close a moment earlier.
    assert report.outcome.exit_code in (137, 3)
    assert report.outcome.detail is not None
    assert "1 s of wall time" in report.outcome.detail


def test_a_process_that_stood_still_reads_what_came_meanwhile(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the daemon is stopped for hours: the report is there, and no time limit was the submission's."""
    stopped_s = 0.0

    def stand_still(*_: object) -> None:
        nonlocal stopped_s
        stopped_s = 10_000.0

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped_s, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(container_module, "time", clock)
    with workshop.engine.start(workshop.spec()) as container:
        report = converse(container, QUICK, on_progress=stand_still)
    assert report.outcome.ending is Ending.COMPLETED, report.outcome


def test_processor_time_is_bounded_for_all_processes_together(workshop: Workshop) -> None:
    """By the cgroup's count, in whatever processes it is used; what has been used before the request does not count."""
    source = "import os\nos.fork()\nos.fork()\nwhile True: pass"
    step = Step(name="test", argv=(workshop.python, "-c", source), timeout_s=100)
    report = workshop.steps(step, cpu_s=0.2)
    assert report.outcome.ending is Ending.CPU_TIME
    assert report.ok is None
    assert report.outcome.cpu_ns is not None
    assert report.outcome.cpu_ns > 200_000_000
    assert "0.2 s of processor time" in (report.outcome.detail or "")
    asleep = Step(name="test", argv=("/bin/sleep", "1.5"), timeout_s=100)
    assert workshop.steps(asleep, cpu_s=0.2).ok
