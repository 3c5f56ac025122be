"""When a case is timed again, and how many calls and control calls it has; the times themselves are made up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.harness.judge import benchmark
from tasks.harness.judge.audit import Sample
from tasks.harness.judge.benchmark import Benchmark, _JudgeClock
from tasks.harness.judge.stopping import Timing
from tasks.harness.judge.worker_client import COPY_BYTES
from tests.support.scripted_workers import Script, alternating, time_case

_CALL_NS, _HAND_OVER_NS = 50_000, 100_000
_SPAN_NS = _CALL_NS + _HAND_OVER_NS


def _judge(**fields: Any) -> Benchmark:  # noqa: ANN401 the request's own
    request: Any = SimpleNamespace(tolerance=0.1, rejects_forged_times=True, **fields)
    made_up: Any = None
    return Benchmark(request, device="cpu", workers=made_up, readings=made_up, calibration=None)


@pytest.mark.parametrize(
    ("varies_ns", "again"),
    [
        # The noise of one row is at most a tenth of a call.
        (10_000, 0),
        # That of two, three and four together is.
        (16_000, 1),
        (20_000, 2),
        (23_000, 3),
        # Four are the most; one more where not even half of the noise of one would do.
        (28_000, 3),
        (60_000, 1),
    ],
)
def test_noise_gets_up_to_three_more_chances(varies_ns: int, again: int) -> None:
    """The calls of all rows count together, whatever the worker claims."""
    script = Script(spans_ns=[_SPAN_NS], controls_ns=alternating(_HAND_OVER_NS, varies_ns))
    for claim_ns in (_CALL_NS, 0, 1 << 60):
        script.claims_ns = [claim_ns]
        outcome = time_case(script, device="cuda")
        assert outcome.details["timed_again"] == again
        assert outcome.report.timing is not None
        assert outcome.report.timing.summary.runs == outcome.details["calls"] == 100 * (again + 1)
        assert outcome.details["set_aside"] == 0


def test_calls_of_all_rows_together_make_a_claim_count() -> None:
    """One row leaves more noise than a tenth of a call, both together do not; lowered claims still do not count.

    A claim that the clock contradicts is no reason to time again: more calls would say the same.
    """
    script = Script(
        spans_ns=[_SPAN_NS - 16_000, _SPAN_NS + 16_000], controls_ns=alternating(_HAND_OVER_NS, 16_000), claims_ns=[0]
    )
    for claim_ns, timing in ((_CALL_NS, "audited"), (_CALL_NS - 6_000, "measured")):
        outcome = time_case(replace(script, claims_ns=[claim_ns]))
        assert (outcome.details["timing"], outcome.details["timed_again"]) == (timing, 1)
    script = Script(spans_ns=[_SPAN_NS], controls_ns=alternating(_HAND_OVER_NS, 1_000), claims_ns=[_CALL_NS // 2])
    details = time_case(script).details
    assert (details["contradicted"], details["timed_again"]) == (True, 0)


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({}, {"ranked": False}),
        ({"input_bytes": COPY_BYTES + 1}, {}),
        ({"input_bytes": (4 << 20) + 1}, {}),
        # Shorter than 20 µs.
        ({"spans_ns": [_HAND_OVER_NS + 19_000]}, {}),
        # Control calls have used half a second.
        ({"control_takes_ns": 200_000_000}, {}),
        # More than 0.3 of its time has been used.
        ({"check_ns": 10_000_000}, {"timing": Timing(max_wall_s=3.0)}),
        ({"controls_ns": None}, {}),
    ],
)
def test_noise_that_more_calls_would_not_help_gets_none(changes: dict[str, Any], settings: dict[str, Any]) -> None:
    """Where no time ranks or the calls are short, where more would take too long, and where nothing measures noise."""
    usual = {"spans_ns": [_SPAN_NS], "controls_ns": alternating(_HAND_OVER_NS, 20_000)}
    assert time_case(Script(**{**usual, **changes}), **settings).details["timed_again"] == 0


@pytest.mark.parametrize(("ranked", "always"), [(True, False), (True, True), (False, False)])
def test_copies_that_stalled_for_a_while_get_another_chance(*, ranked: bool, always: bool) -> None:
    """Those of a host do not stall again; what makes them stall whenever it is timed has them in its times."""
    stalled = [True] * 22 + [always] * 1000
    script = Script(spans_ns=[1_000_000], input_bytes=8 << 20, stalled=stalled, copies_ns=[500_000], late_ns=500_000)
    outcome = time_case(script, ranked=ranked, timing=Timing(max_runs=20))
    assert outcome.details["outside_median_ns"] == (1_000_000 if ranked and not always else 1_500_000)
    assert (outcome.details["calls"], outcome.details["set_aside"]) == (20, 0)
    assert outcome.details["timed_again"] == ranked


def test_a_timing_that_does_not_count_lengthens_no_control_call() -> None:
    """Long calls whose copies stall would have long control calls, which cost more, subtracted from short calls."""
    slow = 22
    script = Script(
        spans_ns=[5_000_000] * slow + [1_000_000] * 1000,
        controls_cold=0.02,
        input_bytes=8 << 20,
        stalled=[True] * slow + [False] * 1000,
        copies_ns=[500_000],
        late_ns=500_000,
    )
    outcome = time_case(script, timing=Timing(max_runs=20))
    assert outcome.details["outside_median_ns"] == 1_000_000
    assert outcome.details["hand_over_ns"] <= 10_000 + 0.02 * 1_000_000


@pytest.mark.parametrize(
    ("varies_ns", "ranked", "calls"), [(500, True, 20), (6_000, True, 86), (30_000, True, 100), (30_000, False, 20)]
)
def test_a_hand_over_that_varies_needs_more_calls(varies_ns: int, calls: int, *, ranked: bool) -> None:
    """Equal spans would end a case after 20 calls, and do where its times do not rank.

    Two standard errors of the hand-over are to be 3 % of a call, less 0.2 µs.
    """
    script = Script(spans_ns=[_SPAN_NS], controls_ns=alternating(_HAND_OVER_NS, varies_ns), copies_ns=[0])
    outcome = time_case(script, ranked=ranked, timing=Timing(max_runs=100))
    assert outcome.details["calls"] == calls * (outcome.details["timed_again"] + 1)
    assert outcome.details["stopped"] == ("runs" if calls == 100 else "interval")


@pytest.mark.parametrize("claim_ns", [_CALL_NS, 0, 1 << 60])
@pytest.mark.parametrize(
    ("calls", "takes_ns", "ranked", "noise_ns", "controls"),
    [
        (100, 0, True, 10_000, 300),
        # As many as calls where not even three for each would leave little enough noise.
        (100, 0, True, 10_100, 100),
        (20, 0, True, 10_000, 60),
        (100, 250_000_000, True, 10_000, 20),
        (100, 0, False, 10_000, 5),
    ],
)
def test_control_calls_at_the_end_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
    claim_ns: int,
    *,
    calls: int,
    takes_ns: int,
    controls: int,
    ranked: bool,
    noise_ns: int,
) -> None:
    """By the calls, since their own error stays, and by time, since a busy host takes long for each.

    There are few where no time ranks.
    """
    now = SimpleNamespace(ns=0)
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(monotonic_ns=lambda: now.ns))
    # They vary so much that no number of them is enough.
    costs = SimpleNamespace(
        count=0,
        telling=0,
        telling_disturbed=0,
        telling_slow=0,
        disturbed=0,
        slow=0,
        mean_ns=_CALL_NS,
        sd_ns=1e9,
        single_ns=1e9,
    )
    costs.statistical_ns, costs.noise_ns = lambda **_: 1e9, lambda **_: noise_ns
    timed: Any = SimpleNamespace(controls=costs, controls_stalled=0, size_ratio=1.0, input_bytes=64, controls_made=0)

    def call_controls(count: int) -> None:
        costs.count += count
        timed.controls_made += count
        now.ns += takes_ns

    timed.call_controls = call_controls
    samples = [Sample(claim_ns=claim_ns, outside_ns=2 * _CALL_NS)] * calls
    crowded = _judge()._add_controls(timed, samples, ranked=ranked)
    assert (costs.count, crowded) == (controls, takes_ns > 0)


def test_control_calls_that_tell_how_many_wait_do_not_move_the_hand_over() -> None:
    """They follow each other at the end, and are cheaper than those between the calls."""
    script = Script(
        spans_ns=[_SPAN_NS] * 17 + [3 * _SPAN_NS] * 3, delayed_ns=[0] * 17 + [2 * _SPAN_NS] * 3, controls_ns=[1e5]
    )
    alone = time_case(script)
    rows: list[Any] = [done[1] for done in alone.done if done[0] == "control"]
    assert rows[-8:] == [10] * 8

    script.controls_ns = [1e5] * sum(rows[:-8]) + [*[6e4] * 9, math.inf] * 8
    outcome = time_case(script)
    assert outcome.details["hand_over_ns"] == alone.details["hand_over_ns"]
    assert outcome.details["controls"] == sum(rows)
    assert outcome.details["set_aside"] > alone.details["set_aside"]


@pytest.mark.parametrize("waits", [1.0, 0.9, 0.5])
def test_control_calls_that_waited_for_a_core_do_not_go_on_for_ever(waits: float) -> None:
    """A host on which most of them wait has no estimate, or a noisy one, and the case ends all the same."""
    costs = list(itertools.islice(itertools.cycle([math.inf] * round(10 * waits) + [1e5] * round(10 - 10 * waits)), 10))
    outcome = time_case(Script(spans_ns=[_SPAN_NS], controls_ns=costs, control_takes_ns=1_000_000))
    assert outcome.details["calls"] <= 200
    assert outcome.details["timing"] == "measured" or waits < 1


def test_a_row_of_control_calls_comes_every_twenty_calls() -> None:
    """The hand-over drifts; calls that are too short to be more than measured have one at the end alone.

    Beside calls over larger inputs rows come more often, since those at the end would take long, and say little.
    """

    def rows(spans_ns: Sequence[int], input_bytes: int = 64, *, ranked: bool = False) -> list[int]:
        script = Script(spans_ns=spans_ns, input_bytes=input_bytes, controls_ns=alternating(10_000, 9_000))
        outcome = time_case(script, ranked=ranked, timing=Timing(min_runs=70, max_runs=70))
        counts, calls = [], -2
        for what, *more in outcome.done:
            calls += what == "call"
            if what == "control":
                counts += [calls, more[0]]
        return counts  # type: ignore[return-value]  # numbers

    assert rows([60_000]) == [3, 8, 20, 4, 40, 4, 60, 4, 70, 5]
    assert rows([19_000]) == [3, 8, 70, 5]
    beside = [3, 8, *itertools.chain(*([calls, 6] for calls in range(10, 71, 10)))]
    for input_bytes in (COPY_BYTES + 1, 4 << 20):
        assert rows([60_000], input_bytes) == [*beside, 70, 5]
        assert rows([60_000], input_bytes, ranked=True) == beside
        assert rows([400_000], input_bytes) == [3, 8, 20, 4, 40, 4, 60, 4, 70, 5]
    assert len(rows([60_000], COPY_BYTES, ranked=True)) > len(beside)


def test_the_judges_clock_is_its_processor_time_that_of_rank_checkers_and_the_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody else can make it run: what the judge waits for beside calls is not in it."""
    now = SimpleNamespace(host=0)
    clocks = SimpleNamespace(monotonic_ns=lambda: now.host, perf_counter_ns=lambda: now.host)
    monkeypatch.setattr(benchmark, "time", clocks)
    timed: Any = SimpleNamespace(judging_ns=7)
    clock = _JudgeClock(timed)
    assert clock.elapsed_ns == 0
    now.host += 10**12
    assert clock.elapsed_ns == 0
    timed.judging_ns += 23
    clock.add_call(100)
    assert clock.elapsed_ns == 123
