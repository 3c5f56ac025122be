"""Workers whose calls take the time that a script says, under clocks that stand still meanwhile.

The judge's benchmark and its timed cases run as they are, with no process beside them: what they decide is the same
each time, and what it rests on is in the script.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.harness.judge import benchmark, mode_run, throttling, timed_case
from tasks.harness.judge.audit import ControlRow
from tasks.harness.judge.benchmark import Benchmark
from tasks.harness.judge.cases import parse_cases
from tasks.harness.judge.faults import Fault
from tasks.harness.judge.hand_over import Calibration
from tasks.harness.judge.mode_run import ModeRun
from tasks.harness.judge.report import CaseReport
from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.judge.stopping import Timing
from tasks.harness.judge.throttling import DeviceUnsteady, Readings
from tasks.harness.judge.workers import Call

CASE = "size: 8; seed: 1"
MODE_NS = 1_000_000_000_000
#: Facts of a case that say what was done, not what its times count as.
COURSE = ("calls", "checked", "controls", "set_aside", "stopped", "timed_again")


@dataclass(kw_only=True)
class Clocks:
    """Clocks of a judge: all of the host's time, and its own processor time."""

    now_ns: int = 1_000_000_000
    processor_ns: int = 0

    @property
    def module(self) -> SimpleNamespace:
        """In place of `time`."""
        return SimpleNamespace(monotonic_ns=lambda: self.now_ns, perf_counter_ns=lambda: self.now_ns)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the judge's modules look at these clocks."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (benchmark, mode_run, throttling, timed_case):
                patch.setattr(module, "time", self.module)
            yield


@dataclass(kw_only=True)
class Script:
    """What calls and control calls take, in nanoseconds. Each list begins anew at its end."""

    spans_ns: Sequence[int]
    claims_ns: Sequence[int] = (0,)
    exclusive: Sequence[bool] = (True,)
    delayed_ns: Sequence[int | None] = (0,)
    #: None: no control calls can be made.
    controls_ns: Sequence[float] | None = (10_000.0,)
    #: What they cost beside this for each nanosecond of their kernel.
    controls_cold: float = 0.0
    #: Those whose kernel takes longer wait for a core.
    controls_wait_from_ns: float = math.inf
    #: Whether calls, and copies of control calls, stall.
    stalled: Sequence[bool] = (False,)
    controls_stall: bool = False
    #: Time of the host for each control call, processor time of the judge for each check, and time of rank checkers.
    control_takes_ns: int = 0
    check_ns: int = 0
    checkers_ns: int = 0
    input_bytes: int = 64
    by_flags: bool = True
    #: How long copies of outputs go on after the clock.
    copies_ns: Sequence[int] = (1_000_000,)
    #: How much of each the worker could write in; None: all of it.
    late_ns: int | None = None


class ScriptedWorkers:
    """In the place of workers; `done` is what was asked of them."""

    def __init__(self, script: Script, clocks: Clocks) -> None:
        self._script = script
        self._clocks = clocks
        self._spans = cycle(script.spans_ns)
        self._claims = cycle(script.claims_ns)
        self._exclusive = cycle(script.exclusive)
        self._delayed = cycle(script.delayed_ns)
        self._stalled = cycle(script.stalled)
        self._copies = cycle(script.copies_ns)
        self._costs = cycle(script.controls_ns or (math.inf,))
        self.done: list[tuple[object, ...]] = []
        self._checkers_ns = 0
        self.spans_ns: list[int] = []

    @property
    def judging_ns(self) -> int:
        """See Workers."""
        return self._clocks.processor_ns + self._checkers_ns

    def call(self, arguments: object, *, rng_seed: object, output_capacities: object, deadline_ns: int) -> Call:
        """The next call of the script."""
        del arguments, rng_seed, deadline_ns
        self.done.append(("call", output_capacities))
        outside_ns = next(self._spans)
        self.spans_ns.append(outside_ns)
        self._clocks.now_ns += outside_ns
        copy_ns = next(self._copies)
        return Call(
            shape="a shape",
            claims_ns=(next(self._claims),),
            output_capacities=(512,),
            outside_ns=outside_ns,
            by_flags=self._script.by_flags,
            delayed_ns=next(self._delayed),
            stalled=next(self._stalled),
            copy_ns=copy_ns,
            late_ns=copy_ns if self._script.late_ns is None else self._script.late_ns,
            exclusive=next(self._exclusive),
            tensors=1,
            input_bytes=self._script.input_bytes,
        )

    def check(self, *, deadline_ns: int) -> str:
        """Every output is right."""
        del deadline_ns
        self.done.append(("check",))
        self._clocks.processor_ns += self._script.check_ns
        self._clocks.now_ns += self._script.check_ns
        self._checkers_ns += self._script.checkers_ns
        return ""

    def control(self, cases: object, count: int, *, like: Call, kernel_ns: int, deadline_ns: int) -> ControlRow | None:
        """The next control calls of the script."""
        del cases, deadline_ns
        asked = like.shape, like.output_capacities, like.parts, like.input_bytes, kernel_ns
        self.done.append(("control", count, *asked))
        if self._script.controls_ns is None:
            return None
        self._clocks.now_ns += count * self._script.control_takes_ns
        cold_ns = self._script.controls_cold * kernel_ns
        costs_ns = [float(next(self._costs)) + cold_ns for _ in range(count)]
        if kernel_ns > self._script.controls_wait_from_ns:
            costs_ns = [math.inf] * count
        return ControlRow(costs_ns=costs_ns, kernel_ns=kernel_ns, stalled=count * self._script.controls_stall)


@dataclass(kw_only=True)
class Outcome:
    """What was done for a case, and what came of it."""

    done: Sequence[tuple[object, ...]]
    #: Of the case, for the report.
    details: Mapping[str, Any]
    report: CaseReport
    judged_ns: float
    #: Verdict of a submission that is rejected, and message of a device that is refused.
    rejected: str | None = None
    unsteady: str | None = None
    spans_ns: Sequence[int] = field(default_factory=list)

    @property
    def course(self) -> Mapping[str, Any]:
        """All that must not depend on a claim."""
        facts = {name: self.details[name] for name in COURSE}
        return {"done": self.done, "judged_ns": self.judged_ns, "spans_ns": self.spans_ns, **facts}


def time_case(
    script: Script,
    *,
    mode: str = "leaderboard",
    ranked: bool = True,
    timing: Timing | None = None,
    device: str = "cpu",
    calibration: Calibration | None = None,
    tolerance: float = 0.1,
    rejects: bool = False,
    mode_ns: int = MODE_NS,
    cases: int = 1,
    earlier_ns: float = 0.0,
) -> Outcome:
    """Time a case as the judge does.

    Args:
        script: says what calls take.
        mode: leaderboard or benchmark.
        ranked: whether its times rank.
        timing: the task's own.
        device: cpu or cuda.
        calibration: where there are no control calls.
        tolerance: see JudgeRequest.
        rejects: whether forged times are rejected on a device.
        mode_ns: the mode's time.
        cases: how many the mode has.
        earlier_ns: what earlier cases have taken the judge.
    """
    clocks = Clocks()
    request = ModeRequest(name=mode, cases=(CASE,) * cases, timeout_s=mode_ns / 1e9, timing=timing, ranked=ranked)
    workers = ScriptedWorkers(script, clocks)
    with clocks.installed():
        run = ModeRun(
            request=request,
            cases=parse_cases(request.cases, global_seed=None),
            start_ns=clocks.now_ns,
            deadline_ns=clocks.now_ns + mode_ns,
            judged_ns=earlier_ns,
            reports=[CaseReport(spec=CASE)],
        )
        made = Benchmark(
            JudgeRequest(
                modes=(request,),
                files={},
                worker_files=(),
                submission_name="submission.py",
                submission="",
                device=device,
                tolerance=tolerance,
                rejects_forged_times=rejects,
            ),
            device=device,
            workers=workers,  # type: ignore[arg-type]  # what timed cases need of them
            readings=Readings(),
            calibration=calibration,
        )
        rejected = unsteady = None
        try:
            made.run(run, 0, run.cases[0])
        except Fault as fault:
            rejected = fault.verdict
        except DeviceUnsteady as error:
            unsteady = str(error)
    return Outcome(
        done=workers.done,
        details=run.details["cases"][0],
        report=run.reports[0],
        judged_ns=run.judged_ns,
        rejected=rejected,
        unsteady=unsteady,
        spans_ns=workers.spans_ns,
    )


def alternating(middle: float, distance: float) -> Sequence[float]:
    """Costs with this mean and this standard deviation, of which every row of an even length has both."""
    return [middle - distance, middle + distance]
