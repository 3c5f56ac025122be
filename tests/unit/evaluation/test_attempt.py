"""What a judge is told of its devices during a run, and whose fault a container's end is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.base.gpu_types import ClockPolicy
from runner.devices import Reading
from runner.evaluation import attempt
from runner.evaluation.attempt import Attempt, _had_ended_before, judge_readings
from runner.evaluation.kinds.kind import Kind, Spent
from runner.evaluation.plan import Plan, make_probe
from sandbox.spec import Ending
from tests.unit import samples


@pytest.mark.parametrize(
    ("clocks", "held", "noted"),
    [
        (ClockPolicy(), ("hw_slowdown",), ("sw_power_cap",)),
        (ClockPolicy(set_aside=("sw_power_cap",)), ("sw_power_cap",), ("hw_slowdown",)),
        (ClockPolicy(sm_mhz=1980, memory_mhz=2619), ("hw_slowdown", "sm_clock_off"), ("sw_power_cap",)),
        (ClockPolicy(sm_mhz=1410, memory_mhz=1593), ("hw_slowdown", "memory_clock_off"), ("sw_power_cap",)),
    ],
)
def test_the_clocks_of_the_gpu_type_decide_which_times_count(
    clocks: ClockPolicy, held: tuple[str, ...], noted: tuple[str, ...]
) -> None:
    """The judge hears reasons that count and reasons that do not, and a clock off the lock is one that counts."""
    reading = Reading(throttle=("sw_power_cap", "hw_slowdown"), sm_clock_mhz=1410, memory_clock_mhz=2619, power_w=700.0)
    (found,) = judge_readings([reading], replace(samples.H100, clocks=clocks), at_ns=17)
    assert (found.held, found.noted) == (held, noted)
    assert (found.at_ns, found.sm_clock_mhz, found.memory_clock_mhz, found.power_w) == (17, 1410, 2619, 700.0)


def test_what_slows_one_device_of_a_slot_spoils_the_times_of_all() -> None:
    """Whichever device's reading is the last one before a call, or the first one after it, says so."""
    gpu = replace(samples.H100, count=4, clocks=ClockPolicy(sm_mhz=1410))
    good, noted = Reading(sm_clock_mhz=1410), Reading(sm_clock_mhz=1410, throttle=("sw_power_cap",))
    hot = Reading(sm_clock_mhz=1410, throttle=("hw_thermal_slowdown",))
    found = list(judge_readings([good, hot, Reading(sm_clock_mhz=1980), noted], gpu, at_ns=17))
    assert [reading.held for reading in found] == [("hw_thermal_slowdown", "sm_clock_off")] * 4
    assert [reading.noted for reading in found] == [(), (), (), ("sw_power_cap",)]
    assert [reading.sm_clock_mhz for reading in found] == [1410, 1410, 1980, 1410]
    assert [reading.held for reading in judge_readings([good, noted], gpu, at_ns=18)] == [(), ()]


@pytest.mark.parametrize(
    ("requests", "is_clean", "verdict", "ending", "repeated"),
    [
        (1, False, None, Ending.DIED, True),
        (1, False, None, Ending.COMPLETED, False),
        (2, True, None, Ending.COMPLETED, False),
        # It met a limit, or its judge failed.
        (2, False, None, Ending.COMPLETED, True),
        (2, False, "runtime_error", Ending.COMPLETED, True),
        (2, False, "wrong_answer", Ending.COMPLETED, False),
        (2, False, None, Ending.BAD_REPORT, True),
        (2, False, None, Ending.CANCELLED, False),
        (2, False, None, Ending.DEADLINE, False),
    ],
)
def test_a_request_is_repeated_where_an_earlier_one_may_have_harmed_it(
    requests: int, is_clean: bool, verdict: str | None, ending: Ending, repeated: bool
) -> None:
    """A waiting container that was gone is no verdict; after another request no bad end is, but a wrong answer."""
    container: Any = SimpleNamespace(requests=requests)
    outcome = SimpleNamespace(ending=ending, oom_kills=0, detail=None)
    steps = () if verdict is None else (SimpleNamespace(judged=SimpleNamespace(verdict=verdict)),)
    report: Any = SimpleNamespace(steps=steps, outcome=outcome, is_clean=is_clean)
    assert _had_ended_before(container, report, "cpu0") is repeated


@pytest.mark.parametrize(("spent_s", "waited_s", "left_s"), [(0, 0, 60), (70, 0, 30), (70, 50, 60), (500, 0, 1)])
def test_a_container_gets_what_its_job_has_left(
    monkeypatch: pytest.MonkeyPatch, spent_s: int, waited_s: int, left_s: int
) -> None:
    """Builds and earlier containers of a job count; waiting for a build worker does not."""
    started: list[Plan] = []

    @contextmanager
    def execute(plan: Plan, *_: object, **__: object) -> Iterator[tuple[Any, int]]:
        started.append(plan)
        yield SimpleNamespace(), 0

    monkeypatch.setattr(attempt, "execute", execute)
    began_ns = time.monotonic_ns() - spent_s * 10**9
    context = replace(samples.PLACE, slot=samples.SLOT)
    kind = SimpleNamespace(context=SimpleNamespace(**vars(context), started_ns=began_ns, max_run_s=100.0))
    resources: Any = SimpleNamespace(gate=SimpleNamespace(sampling=lambda *_, **__: nullcontext()), builds=None)
    job = Attempt(cast("Kind", kind), resources, cancel=threading.Event(), on_progress=None)
    job._spent = Spent(waited_ns=waited_s * 10**9)
    job._execute(make_probe(samples.PLACE), None)
    assert round(started[0].spec.limits.wall_s) == left_s
