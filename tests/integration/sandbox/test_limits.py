"""Hostile programs against the limits, in real containers: each ends, is told apart, and the container reports on."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from sandbox.host import container as container_module
from sandbox.protocol import Step
from sandbox.spec import Ending
from tests.integration.sandbox.conftest import QUICK, SLEEP, Workshop, converse
from tests.support.waiting import PATIENCE_S


def test_an_undumpable_process_is_found_and_killed(workshop: Workshop) -> None:
    """A process whose /proc directory belongs to root does not hide from the cleaning up."""
    source = """
import ctypes, os, time
if os.fork() == 0:
    ctypes.CDLL(None).prctl(4, 0)
    os.setsid()
    time.sleep(1000)
time.sleep(0.2)
"""
    hides = Step(name="test", argv=(workshop.python, "-c", source), timeout_s=20)
    look = Step(name="after", argv=("/bin/sh", "-c", "set -- /proc/[0-9]*; echo $#"), result_pipe=False)
    # Init and the shell that counts.
    assert workshop.steps(hides, look).steps[1].stdout == "2\n"


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


def test_a_cancellation_is_heard_at_once(workshop: Workshop) -> None:
    """The container is killed for the event, long before its limits; how fast the engine kills is the machine's."""
    cancel = threading.Event()
    report = workshop.run(workshop.spec(wall_s=1000), SLEEP, cancel=cancel, on_progress=lambda *_: cancel.set())
    assert report.outcome.ending is Ending.CANCELLED
    # Less than the box's own limit, and than what the step sleeps.
    assert report.outcome.wall_ns < PATIENCE_S * 1e9


def test_the_counters_of_an_ordinary_run_are_read_from_the_host(workshop: Workshop) -> None:
    """Processor time is there, and nothing was killed or denied."""
    _, report = workshop.program("sum(range(10**6))")
    assert report.outcome.cpu_ns is not None
    assert report.outcome.cpu_ns > 1_000_000
    assert report.outcome.oom_kills == 0
    assert report.outcome.pids_denied == 0
