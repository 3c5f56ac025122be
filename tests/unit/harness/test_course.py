"""Which calls of a case count, how long they are, when it ends: from the judge's clocks alone, never from a claim."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import fmean, median, stdev
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.harness.judge.audit import ControlCosts, Sample
from tasks.harness.judge.course import (
    HandOverFacts,
    kept,
    late_ns,
    length_ns,
    progress,
    unexplained,
    waits_of,
    with_copies,
    with_unexplained,
)
from tasks.harness.judge.hand_over import Bound, Calibration, Costs, DeviceCosts, HandOver
from tasks.harness.judge.stopping import Progress, Timing, Waits
from tests.support.scripted_workers import Outcome, Script, time_case

_HAND_OVER = HandOver(p25_ns=9_000, median_ns=10_000, p75_ns=11_000)
CALIBRATION = Calibration(
    message=Costs(
        short=_HAND_OVER,
        long=_HAND_OVER,
        long_kernel_ns=30_000_000,
        per_tensor_ns=0,
        per_input_byte_ns=0,
        per_output_byte_ns=0,
    ),
    device=DeviceCosts(hand_over=_HAND_OVER),
)
_CALIBRATIONS = {"device": CALIBRATION, "message": CALIBRATION, "unknown": replace(CALIBRATION, message=None)}
#: Calls none of which is so long that it is set aside.
VARYING = (60_000, 63_000)
_CHECKED = Script(spans_ns=VARYING, check_ns=30_000_000, copies_ns=[0])
_NARROW = Script(spans_ns=[60_000], copies_ns=[200_000])
#: Kernels of a microsecond to seconds, some calls of which something makes longer; hand-overs of 5 to 100 µs.
SPANS = st.sampled_from([1_000, 15_000, 40_000, 500_000, 20_000_000, 3_000_000_000]).flatmap(
    lambda kernel_ns: st.lists(
        st.one_of(
            st.integers(5_000, 30_000),
            st.integers(5_000, 100_000),
            st.sampled_from([kernel_ns // 10, 3_000_000, 300_000_000]),
        ).map(lambda more_ns: kernel_ns + more_ns),
        min_size=1,
        max_size=30,
    )
)
COSTS = st.lists(st.one_of(st.floats(5_000, 30_000), st.floats(5_000, 100_000), st.just(math.inf)), min_size=1)
CLAIMS = st.lists(
    st.one_of(st.just(0), st.just(1 << 61), st.integers(0, 1 << 20), st.integers(0, 1 << 33)), min_size=1, max_size=30
)
FLAGS = st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=30)
TIMINGS = st.sampled_from(
    [
        None,
        Timing(max_runs=30),
        Timing(min_runs=5, min_kernel_s=0.0),
        Timing(max_kernel_s=0.05),
        Timing(max_wall_s=0.03),
        Timing(refuse=0.0),
        Timing(min_wall_s=0.01),
    ]
)


def _outcomes(
    script: Script, claims: Sequence[Sequence[int]], *, how: str, timing: Timing | None, ranked: bool
) -> list[Outcome]:
    if how != "controls":
        script = replace(script, controls_ns=None, by_flags=how == "device")
    return [
        time_case(
            replace(script, claims_ns=claims_ns),
            timing=timing,
            ranked=ranked,
            device="cpu" if how in ("controls", "nothing") else "cuda",
            calibration=_CALIBRATIONS.get(how),
        )
        for claims_ns in claims
    ]


@settings(deadline=None, max_examples=60)
@given(
    spans_ns=SPANS,
    controls_ns=COSTS,
    exclusive=FLAGS,
    delayed_ns=st.lists(st.sampled_from([0, 0, 0, 30_000, 5_000_000, None]), min_size=1),
    claims=st.tuples(CLAIMS, CLAIMS),
    how=st.sampled_from(["controls", "controls", "device", "message", "unknown", "nothing"]),
    timing=TIMINGS,
    check_ns=st.sampled_from([0, 1_000_000, 1_500_000_000]),
    ranked=st.booleans(),
)
def test_no_decision_depends_on_a_claim(
    *,
    spans_ns: list[int],
    controls_ns: list[float],
    exclusive: list[bool],
    delayed_ns: list[int | None],
    claims: tuple[list[int], list[int]],
    how: str,
    timing: Timing | None,
    check_ns: int,
    ranked: bool,
) -> None:
    """Calls, control calls, checks, calls that are set aside and the reason to end are the same, whatever is claimed.

    So is whether times are refused as noise, but for those of a submission whose claims are rejected.
    """
    script = Script(
        spans_ns=spans_ns,
        controls_ns=controls_ns,
        exclusive=exclusive,
        delayed_ns=delayed_ns,
        check_ns=check_ns,
        control_takes_ns=1_000_000,
    )
    true_ns = [max(span_ns - 10_000, 0) for span_ns in spans_ns]
    outcomes = _outcomes(script, [true_ns, [0], [1 << 62], *claims], how=how, timing=timing, ranked=ranked)
    assert [outcome.course for outcome in outcomes] == [outcomes[0].course] * len(outcomes)
    assert len({outcome.unsteady for outcome in outcomes if outcome.rejected is None}) <= 1


@pytest.mark.parametrize(
    ("script", "timing", "stopped", "calls"),
    [
        (Script(spans_ns=[60_000]), None, "interval", 20),
        (Script(spans_ns=VARYING), None, "runs", 100),
        (Script(spans_ns=[1_000_000, 1_020_000]), Timing(max_kernel_s=0.0105), "kernel_time", 11),
        (Script(spans_ns=[1_000_000, 1_020_000]), Timing(max_wall_s=0.01), "wall_time", 10),
        (Script(spans_ns=VARYING, check_ns=3_000_000_000), None, "check_time", 7),
        (Script(spans_ns=VARYING, check_ns=30_000_000_000), None, "check_time", 3),
        (Script(spans_ns=VARYING, check_ns=1_000_000), Timing(max_wall_s=0.02), "wall_time", 19),
        (Script(spans_ns=VARYING, checkers_ns=1_000_000), Timing(max_wall_s=0.02), "wall_time", 19),
    ],
)
def test_a_case_ends_for_each_reason(script: Script, timing: Timing | None, stopped: str, calls: int) -> None:
    """And all of its calls have been checked, the two before the clock as well."""
    outcome = time_case(script, timing=timing, ranked=False)
    facts = outcome.details
    assert (facts["stopped"], facts["calls"]) == (stopped, calls)
    assert facts["checked"] == facts["calls"] + 2
    done = [what for what, *_ in outcome.done if what != "control"]
    assert done == ["call", "check"] * (calls + 2)


@pytest.mark.parametrize(
    ("script", "how", "stopped", "calls"),
    [
        # Half a second of the judge's time is enough on a CPU, where the task has no rule and bytes that are written
        # late gain little: 200 µs by 39 calls are a tenth of 51.5 µs; a worker may lengthen the copies of some.
        (_CHECKED, {}, "enough", 20),
        (replace(_CHECKED, copies_ns=[200_000]), {}, "enough", 39),
        (replace(_CHECKED, copies_ns=[30_000, 200_000, 30_000]), {}, "enough", 39),
        (replace(_CHECKED, copies_ns=[1_000_000]), {}, "runs", 100),
        (replace(_CHECKED, copies_ns=[1_000_000]), {"ranked": False}, "enough", 20),
        (_CHECKED, {"device": "cuda"}, "runs", 100),
        (_CHECKED, {"timing": Timing()}, "runs", 100),
        # A narrow interval, too, ends no case before; 40 calls of 50 µs: a worker that is late varies little.
        (replace(_NARROW, copies_ns=[100_000]), {}, "interval", 20),
        (_NARROW, {}, "interval", 40),
        (_NARROW, {"timing": Timing()}, "interval", 40),
        (_NARROW, {"ranked": False}, "interval", 20),
        (replace(_NARROW, copies_ns=[600_000]), {}, "runs", 100),
        # The worker slept in most of the copy.
        (replace(_NARROW, copies_ns=[600_000], late_ns=4_900), {}, "interval", 20),
        (replace(_NARROW, late_ns=5_100), {}, "runs", 100),
    ],
)
def test_no_case_ends_while_late_bytes_could_gain_more_than_a_tenth(
    script: Script, how: dict[str, Any], stopped: str, calls: int
) -> None:
    """Neither half a second of the judge's time nor a narrow interval is enough then."""
    facts = time_case(script, **how).details
    assert (facts["stopped"], facts["calls"]) == (stopped, calls)


def test_only_calls_that_count_make_late_bytes_matter_less() -> None:
    """Those that are set aside are the longest, so none of a worker that is late."""
    spans_ns, delayed_ns = [60_000] * 4 + [600_000], [0] * 4 + [540_000]
    disturbed = replace(_NARROW, spans_ns=spans_ns, delayed_ns=delayed_ns, controls_ns=[10_000, 10_000, math.inf])
    facts = time_case(disturbed).details
    assert facts["calls"] - facts["set_aside"] == 40


@pytest.mark.parametrize(("ranked", "calls"), [(False, 20), (True, 21)])
def test_calls_that_are_set_aside_are_made_again_where_times_rank(calls: int, *, ranked: bool) -> None:
    """Elsewhere what counts is that their outputs have been checked. No more times count than a case may have."""
    script = Script(spans_ns=[60_000, 63_000, 60_000, 63_000, 600_000])
    outcome = time_case(script, timing=Timing(max_runs=20), ranked=ranked)
    assert outcome.report.timing is not None
    facts, runs = outcome.details, outcome.report.timing.summary.runs
    assert (facts["calls"], runs, facts["checked"]) == (calls, 20, calls + 2)


@pytest.mark.parametrize(
    ("spans_ns", "controls_ns", "check_ns", "how", "calls", "again"),
    [
        # Its mean is to be known to within 3 % of a call, as beside a narrow interval.
        ([55_000, 70_000], [4_000.0, 16_000.0], 30_000_000, {}, 78, False),
        # A case that is timed again has its half second anew, as it has all ceilings anew.
        ([60_000, 70_000], [6_000.0, 14_000.0], 10_000_000, {"tolerance": 0.05}, 50, True),
    ],
)
def test_a_hand_over_that_varies_is_timed_on_for_longer_than_half_a_second(
    spans_ns: list[int], controls_ns: list[float], check_ns: int, how: dict[str, Any], calls: int, *, again: bool
) -> None:
    """As many calls in each row."""
    script = Script(spans_ns=spans_ns, check_ns=check_ns, copies_ns=[0], controls_ns=controls_ns)
    facts = time_case(script, **how).details
    assert (facts["stopped"], facts["timed_again"] > 0) == ("enough", again)
    assert facts["calls"] == calls * (1 + facts["timed_again"])


def test_no_time_of_the_host_ends_a_case() -> None:
    """Control calls that a busy host makes slow leave it as many calls: a worker could keep the host busy."""
    script = Script(spans_ns=VARYING, control_takes_ns=10_000_000_000)
    assert time_case(script, timing=Timing(max_wall_s=1.0), ranked=False).details["calls"] == 100


def test_a_mode_shares_three_quarters_of_its_time_among_its_cases() -> None:
    """By what earlier cases have taken the judge, not by what has passed."""
    script = Script(spans_ns=[1_000_000, 1_060_000])
    calls = [
        time_case(script, ranked=False, mode_ns=80_000_000, cases=cases, earlier_ns=earlier_ns).details["calls"]
        for cases, earlier_ns in ((1, 0.0), (2, 0.0), (1, 30_000_000.0), (1, 70_000_000.0))
    ]
    # 60, 30 and 30 ms; and three calls at least.
    assert calls == [59, 30, 30, 3]


def _samples(
    spans_ns: Sequence[float],
    *,
    exclusive: Sequence[bool] = (),
    stalled: Sequence[bool] = (),
    waited: Sequence[bool] = (),
) -> list[Sample]:
    """Calls of so many nanoseconds; those that waited for a core did so all the time."""
    calls = zip_longest(spans_ns, exclusive, stalled, waited)
    return [
        Sample(
            claim_ns=0,
            outside_ns=cast("int", span_ns),
            exclusive=alone is not False,
            stalled=bool(stalls),
            delayed_ns=1 << 40 if waits else 0,
        )
        for span_ns, alone, stalls, waits in calls
    ]


NUMBERS = st.integers(0, 40).flatmap(
    lambda count: st.tuples(
        st.lists(st.floats(1_000, 1e9), min_size=count + 1, max_size=count + 1),
        st.lists(st.booleans(), min_size=count + 1, max_size=count + 1),
    )
)


@given(NUMBERS, st.floats(0, 1), st.floats(0, 1e6))
def test_no_more_calls_are_set_aside_than_something_disturbs(
    calls: tuple[list[float], list[bool]], disturbed: float, single_ns: float
) -> None:
    """At most that share, the others in their order; first those that were not exclusive, then the longest."""
    spans_ns, exclusive = calls
    facts = HandOverFacts(mean_ns=0.0, sd_ns=0.0, single_ns=single_ns, disturbed=disturbed)
    numbers = kept(_samples(spans_ns, exclusive=exclusive), facts)
    aside = sorted(set(range(len(spans_ns))) - set(numbers))
    assert numbers == sorted(set(numbers))
    assert len(numbers) + len(aside) == len(spans_ns)
    assert len(aside) <= disturbed * len(spans_ns)
    alone = [number for number in aside if exclusive[number]]
    # None that is not longer than usual by chance, and none while one beside which the worker computed counts.
    assert all(spans_ns[number] > median(spans_ns) + single_ns for number in alone)
    assert not alone or all(exclusive[number] for number in numbers)
    assert max((spans_ns[number] for number in numbers if exclusive[number]), default=0.0) <= min(
        (spans_ns[number] for number in alone), default=math.inf
    )


def test_the_longest_calls_are_set_aside() -> None:
    """As many as there may be, however many are longer; and none of calls that are alike."""
    facts = HandOverFacts(mean_ns=0.0, sd_ns=0.0, single_ns=5.0, disturbed=0.2)
    spans_ns = [100.0, 900.0, 100.0, 300.0, 100.0, 700.0, 100.0, 106.0, 107.0, 108.0]
    assert kept(_samples(spans_ns), facts) == [0, 2, 3, 4, 6, 7, 8, 9]
    assert kept(_samples(spans_ns, exclusive=[number != 2 for number in range(10)]), facts) == [0, 3, 4, 5, 6, 7, 8, 9]
    assert kept(_samples([100.0] * 10), facts) == list(range(10))
    # 2 % of the median, and what a hand-over varies.
    assert kept(_samples([100.0] * 9 + [106.9]), facts) == list(range(10))
    assert kept(_samples([100.0] * 9 + [107.1]), facts) == list(range(9))


@pytest.mark.parametrize(
    ("seen", "calls", "aside", "number"), [(0.0, 100, 3, 3), (0.02, 100, 3, 1), (0.02, 40, 3, 3), (0.5, 20, 9, 0)]
)
def test_calls_that_control_calls_do_not_explain(seen: float, calls: int, aside: int, number: int) -> None:
    """Those that are set aside beyond as large a part as was seen to be disturbed; none that are not long."""
    facts = HandOverFacts(mean_ns=0.0, sd_ns=0.0, single_ns=5.0, seen=seen)
    spans_ns = [100.0] * (calls - aside) + [900.0] * aside
    assert unexplained(_samples(spans_ns), range(calls - aside), facts) == number
    assert unexplained(_samples([100.0] * calls), range(calls - aside), facts) == 0


@given(st.lists(st.floats(1_000, 1e9), min_size=1, max_size=40), st.integers(0, 20))
def test_a_call_without_an_explanation_counts_as_the_longest_of_the_others(times_ns: list[float], number: int) -> None:
    """In the middle, where it makes no drift."""
    counted = with_unexplained(times_ns, number)
    middle = len(times_ns) // 2
    assert counted[:middle] + counted[middle + number :] == times_ns
    assert counted[middle : middle + number] == [max(times_ns)] * number


#: What part of a kernel's calls is how many times as long as the others.
SLOW_CALLS = [(0.1, 2.0), (0.1, 10.0), (0.3, 2.0)]


def _kernels(
    generator: random.Random,
    kernel_ns: float,
    *,
    rate: float,
    factor: float,
    disturbed: float = 0.0,
    waits: float = 0.0,
) -> Script:
    """A kernel that is slow in a part of its calls, on a host that disturbs a part of all calls.

    `waits`: the part that waits for a core, for a time slice or more of another process.
    """

    def delay_ns() -> float:
        return generator.expovariate(1 / 150e3) if generator.random() < disturbed else 0.0

    def wait_ns() -> int:
        return round(generator.uniform(1e6, 12e6)) if generator.random() < waits else 0

    lengths = [kernel_ns * (factor if generator.random() < rate else 1) for _ in range(600)]
    waited = [wait_ns() for _ in lengths]
    claims = [
        round(length * generator.gauss(1, 0.003) + delay_ns()) + wait
        for length, wait in zip(lengths, waited, strict=True)
    ]
    return Script(
        spans_ns=[claim + round(6_000 + generator.gammavariate(4, 250)) for claim in claims],
        claims_ns=claims,
        delayed_ns=waited,
        controls_ns=[
            math.inf if wait_ns() else 6_000 + generator.gammavariate(4, 250) + delay_ns() for _ in range(600)
        ],
        copies_ns=[0],
        check_ns=150_000,
    )


def _timings(seed: int, runs: int, kernel_ns: float, **kernel: float) -> list[tuple[float, bool, Outcome]]:
    """By how much each mean is off, whether its interval holds the true one, and what was done."""
    generator, timings = random.Random(seed), []  # noqa: S311 a simulation
    truth_ns = kernel_ns * (1 + kernel["rate"] * (kernel["factor"] - 1))
    for _ in range(runs):
        outcome = time_case(_kernels(generator, kernel_ns, **kernel))
        if outcome.unsteady is not None:
            continue
        assert outcome.report.timing is not None
        low, high = outcome.report.timing.mean_ci95
        timings.append((outcome.report.timing.summary.mean / truth_ns - 1, low <= truth_ns <= high, outcome))
    return timings


@pytest.mark.parametrize(("rate", "factor"), SLOW_CALLS)
@pytest.mark.parametrize("kernel_ns", [50e3, 1.3e6])
def test_no_kernel_gains_by_calls_that_are_slow_now_and_then(rate: float, factor: float, kernel_ns: float) -> None:
    """Its mean is right on average, and in its interval, but where no slow call came in the least number of calls.

    Without a slow call nothing tells that kernel from a steady one: of a rate of a tenth in 12 of 100 cases.
    """
    timings = _timings(5, 60, kernel_ns, rate=rate, factor=factor, disturbed=0.001)
    blind = [off for off, _, outcome in timings if outcome.details["calls"] == 20]
    others = [(off, holds) for off, holds, outcome in timings if outcome.details["calls"] > 20]
    assert len(blind) <= 0.2 * len(timings)
    assert abs(fmean(off for off, _ in others)) < 0.03
    assert sum(holds for _, holds in others) >= 0.85 * len(others)


@pytest.mark.parametrize("waits", [0.2, 0.35])
@pytest.mark.parametrize("kernel_ns", [200e3, 1.3e6])
def test_calls_that_wait_for_a_core_explain_none_that_are_slow_by_themselves(kernel_ns: float, waits: float) -> None:
    """As many control calls may wait as a kernel has slow calls: those of its calls that did not wait count."""
    timings = _timings(5, 20, kernel_ns, rate=0.35, factor=3.0, waits=waits)
    assert len(timings) >= 15
    assert min(off for off, *_ in timings) > -0.25


@pytest.mark.parametrize("exclusive", [(True,), (False,), (True, False)])
def test_a_worker_that_computes_beside_its_calls_needs_no_more_for_that(exclusive: tuple[bool, ...]) -> None:
    """A call in twenty is set aside for that, and is none that is slow now and then."""
    script = Script(spans_ns=[300_000], exclusive=exclusive, controls_ns=None, copies_ns=[0])
    facts = time_case(script, device="cuda", calibration=CALIBRATION).details
    assert (facts["stopped"], facts["calls"], facts["set_aside"]) == (
        "interval",
        20 if all(exclusive) else 21,
        0 if all(exclusive) else 1,
    )


@pytest.mark.parametrize(("disturbed", "most"), [(0.0, 20), (0.01, 26)])
def test_a_steady_kernel_needs_no_more_calls_for_that(disturbed: float, most: int) -> None:
    """Where a host disturbs a call in a hundred a few more, and its mean is right: none moves it far."""
    timings = _timings(6, 60, 1.3e6, rate=0.0, factor=1.0, disturbed=disturbed)
    assert fmean(outcome.details["calls"] for *_, outcome in timings) <= most
    assert max(abs(off) for off, *_ in timings) < 0.005


@pytest.mark.parametrize(
    ("disturbed", "stalled", "aside"),
    [(0.2, 0.0, {1, 3}), (0.0, 0.3, {5, 7}), (0.2, 0.1, {1, 3, 5}), (0.2, None, {1, 5}), (0.9, 0.9, {1, 3, 5, 7, 9})],
)
def test_calls_that_stall_are_set_aside_for_the_share_of_control_calls_that_do(
    disturbed: float, stalled: float | None, aside: set[int]
) -> None:
    """And others for the share of those that something disturbs; half of all at most."""
    facts = HandOverFacts(mean_ns=0.0, sd_ns=0.0, single_ns=5.0, disturbed=disturbed, stalled=stalled)
    spans_ns = [100.0, 900.0, 100.0, 300.0, 100.0, 700.0, 100.0, 600.0, 100.0, 200.0]
    stalls = [number in (5, 7) for number in range(10)]
    assert sorted(set(range(10)).difference(kept(_samples(spans_ns, stalled=stalls), facts))) == sorted(aside)


@pytest.mark.parametrize(("slow", "aside"), [(0.0, {1, 3}), (0.1, {1, 3, 5}), (0.2, {1, 5, 7}), (None, {1, 5, 7})])
def test_calls_that_did_not_wait_are_set_aside_for_control_calls_that_did_not(
    slow: float | None, aside: set[int]
) -> None:
    """Those that waited for the share of all that something disturbs."""
    facts = HandOverFacts(mean_ns=0.0, sd_ns=0.0, single_ns=5.0, disturbed=0.3, slow=slow)
    spans_ns = [100.0, 900.0, 100.0, 300.0, 100.0, 700.0, 100.0, 600.0, 100.0, 100.0]
    samples = _samples(spans_ns, waited=[number in (1, 3) for number in range(10)])
    assert set(range(10)).difference(kept(samples, facts)) == aside


@pytest.mark.parametrize(("seen_slow", "number"), [(0.0, 2), (0.1, 1), (0.3, 0)])
def test_waits_explain_no_call_that_did_not_wait(seen_slow: float, number: int) -> None:
    """Of three that are set aside one waited; a third of the control calls were disturbed."""
    facts = HandOverFacts(mean_ns=0.0, sd_ns=0.0, single_ns=5.0, seen=0.34, seen_slow=seen_slow)
    samples = _samples([900.0] * 3 + [100.0] * 7, waited=[True])
    assert unexplained(samples, range(3, 10), facts) == number


def test_the_share_of_disturbed_calls_comes_from_control_calls() -> None:
    """By Laplace's rule: few control calls without a disturbance do not say that there is none."""
    costs = ControlCosts.of([[10_000.0] * 18 + [math.inf] * 2, [9_000_000.0] * 3 + [10_000.0] * 7])
    assert costs is not None
    facts = HandOverFacts.of_controls(costs, stalled=7)
    assert facts.seen == pytest.approx((costs.disturbed + 7) / 30)
    assert (facts.disturbed, facts.stalled) == pytest.approx((6 / 32, 8 / 32))
    assert (facts.slow, facts.seen_slow) == pytest.approx((4 / 32, 3 / 30))
    assert (facts.mean_ns, facts.sd_ns, facts.single_ns) == (costs.mean_ns, costs.sd_ns, costs.single_ns)
    calm = ControlCosts.of([[10_000.0] * 8])
    assert calm is not None
    facts = HandOverFacts.of_controls(calm, stalled=0)
    # The error that Laplace's rule leaves: that none of eight stalled does not say that none of a hundred will.
    assert (facts.disturbed, facts.stalled, facts.stalled_error) == pytest.approx((0.1, 0.1, math.sqrt(0.09 / 11)))


def test_beside_a_calibration_its_bounds_say_what_a_hand_over_costs() -> None:
    """Its middle is the median of span less kernel, and a call may cost more by the margin.

    Where nothing is known the whole spans count, and those are long that lie far beyond the upper quartile.
    """
    spans_ns = [120_000.0, 121_000.0, 150_000.0]
    bounds = [Bound(kernel_ns=span_ns - 20_000, margin_ns=4_000, bound_ns=0) for span_ns in spans_ns]
    facts = HandOverFacts.of_bounds(spans_ns, bounds)
    assert (facts.mean_ns, facts.sd_ns, facts.single_ns, facts.disturbed) == (20_000, 1_000, 4_000, 0.05)
    assert length_ns(spans_ns, facts) == 101_000
    facts = HandOverFacts.unknown([100.0, 100.0, 100.0, 104.0, 104.0])
    assert (facts.mean_ns, facts.sd_ns, facts.single_ns, facts.disturbed) == (0, 0, 16, 0.05)
    assert length_ns([50_000.0], facts) == 50_000


def test_progress_is_that_of_calls_that_count_less_their_hand_over() -> None:
    """What a hand-over varies is not the kernel's; times of the judge are passed on.

    Nothing yet of no call; and none counts as less than a microsecond, however much its hand-over seems to cost.
    """
    spans_ns = [60_000.0, 62_000.0, 58_000.0, 61_000.0, 59_000.0] * 4 + [9_000_000.0]
    facts = HandOverFacts(mean_ns=10_000.0, sd_ns=0.0, single_ns=3_000.0)

    def so_far(spans_ns: list[float], sd_ns: float = 0.0) -> Progress:
        moving = replace(facts, sd_ns=sd_ns)
        return progress(_samples(spans_ns), moving, judged_ns=5.0, checks_ns=7.0)

    found = so_far(spans_ns)
    assert (found.count, found.judged_ns, found.checks_ns) == (20, 5.0, 7.0)
    assert found.mean_ns == fmean(spans_ns[:-1]) - 10_000
    assert found.sd_ns == pytest.approx(stdev(spans_ns[:-1]))
    assert so_far(spans_ns, 1_000.0).sd_ns == pytest.approx(math.sqrt(1_000_000 * 20 / 19))
    assert so_far(spans_ns, 9_000.0).sd_ns == 0
    assert (so_far([]).count, so_far([9_000.0] * 3).mean_ns, length_ns([9_000.0] * 3, facts)) == (0, 1_000, 1_000)


def test_claims_that_vary_are_no_noise_of_the_host() -> None:
    """Equal spans are not refused beside disturbed control calls, and spans that vary are, whatever is claimed."""
    controls_ns = [10_000.0] * 4 + [math.inf]
    for spans_ns, refused in (([60_000], False), ([60_000, 66_000], True)):
        for claims_ns in ([0], [0, 1 << 62]):
            script = Script(spans_ns=spans_ns, claims_ns=claims_ns, controls_ns=controls_ns)
            outcome = time_case(script, timing=Timing(refuse=0.0), ranked=False)
            assert outcome.rejected is None
            assert (outcome.unsteady is not None) == refused


def _crowded(generator: random.Random, kernel_ns: float, *, waits: float, wait_ns: float, disturbed: float) -> Script:
    """A kernel, a part of whose calls waits for a core. Before some of the others, worker or judge waited, too."""
    waited = [round(wait_ns * generator.uniform(0.5, 1.5)) * (generator.random() < waits) for _ in range(600)]
    claims = [round(kernel_ns * generator.gauss(1, 0.01)) + wait for wait in waited]
    return Script(
        spans_ns=[claim + round(10_000 + generator.gammavariate(4, 250)) for claim in claims],
        claims_ns=claims,
        delayed_ns=[wait or 5_000_000 * (generator.random() < 0.1) for wait in waited],
        controls_ns=[
            math.inf if generator.random() < disturbed else 10_000 + generator.gammavariate(4, 250) for _ in range(600)
        ],
        copies_ns=[0],
        check_ns=150_000,
    )


@pytest.mark.parametrize("kernel_ns", [2e3, 10e3, 300e3, 2e6])
@pytest.mark.parametrize(("waits", "wait_ns"), [(0.17, 4e6), (0.17, 20e6), (0.5, 4e6), (0.9, 20e6)])
@pytest.mark.parametrize("disturbed", [0.12, 0.3, 0.7])
def test_no_time_is_many_times_too_long_where_others_had_the_core(
    kernel_ns: float, waits: float, wait_ns: float, disturbed: float
) -> None:
    """It is refused then, and only then; control calls are few, and wait less often. Others are marked."""
    generator, most_ns = random.Random(7), 6 * (kernel_ns + 11_000)  # noqa: S311 a simulation
    wrong = 0
    for _ in range(10):
        outcome = time_case(_crowded(generator, kernel_ns, waits=waits, wait_ns=wait_ns, disturbed=disturbed))
        timing = outcome.report.timing
        if outcome.unsteady is not None:
            assert "waits for a core, and" in outcome.unsteady or "their median lies" in outcome.unsteady
            assert kernel_ns + waits * wait_ns > most_ns
        else:
            assert timing is not None
            wrong += timing.summary.mean > 1.1 * most_ns
            assert timing.noisy is not None or timing.summary.mean < 1.3 * (kernel_ns + 11_000)
    # By chance control calls may not show what disturbs a tenth of them.
    assert wrong <= 1


@pytest.mark.parametrize("kernel_ns", [2e3, 300e3, 20e6])
@pytest.mark.parametrize("waits", [0.17, 1.0])
def test_a_worker_that_waits_for_its_own_threads_has_the_time_that_it_took(kernel_ns: float, waits: float) -> None:
    """They disturb no control call, so its times are not refused: it has no other try."""
    generator, wait_ns = random.Random(8), 50 * (kernel_ns + 11_000)  # noqa: S311 a simulation
    outcome = time_case(_crowded(generator, kernel_ns, waits=waits, wait_ns=wait_ns, disturbed=0.0))
    assert outcome.unsteady is None
    timing = outcome.report.timing
    assert timing is not None
    assert timing.summary.mean > 0.6 * waits * wait_ns
    assert timing.noisy is not None
    assert "waits for a core" in timing.noisy


def test_waits_beside_a_span_are_not_in_it() -> None:
    """A wait is at most what its call took beyond the shortest; where the kernel tells none, there is none."""
    spans_ns, delays_ns = [100, 100, 400, 400, 600], [0, 7_000, 200, 9_000, None]
    samples = [
        Sample(claim_ns=0, outside_ns=span_ns, delayed_ns=delayed_ns)
        for span_ns, delayed_ns in zip(spans_ns, delays_ns, strict=True)
    ]
    assert waits_of(samples, 0) == Waits(span_ns=320, waited_ns=100)
    assert waits_of(samples[:4], 1) == Waits(span_ns=280, waited_ns=140)


@pytest.mark.parametrize(
    ("disturbed", "share", "stalled", "is_added"),
    [
        (0.003, None, 1, False),
        (0.003, None, 2, False),
        (0.003, None, 12, True),
        # Control calls that something disturbed are no excuse, those that stalled are.
        (0.3, 0.003, 12, True),
        (0.003, 0.3, 40, False),
        (0.003, 0.3, 60, True),
    ],
)
def test_copies_are_in_the_spans_where_more_calls_stall_than_chance_explains(
    *, disturbed: float, share: float | None, stalled: int, is_added: bool
) -> None:
    """A busy host makes a few calls stall; these hold their stall in any case."""
    samples = [
        Sample(claim_ns=90_000, outside_ns=100_000, late_ns=500_000, stalled=number < stalled) for number in range(100)
    ]
    facts = HandOverFacts(mean_ns=10_000, sd_ns=1_000, single_ns=3_000, disturbed=disturbed, stalled=share)
    spans = {sample.outside_ns for sample in with_copies(samples, facts)}
    assert spans == {600_000 if is_added else 100_000}


def test_late_bytes_gain_one_copy_and_the_time_before_each_sleep() -> None:
    """In that time the judge looks at the worker, and reads hardly a block."""
    times_ns = [(500, 500), (700, 700), (900, 60), (900, 70)]
    samples = [Sample(claim_ns=0, outside_ns=100, copy_ns=copy_ns, late_ns=each) for copy_ns, each in times_ns]
    assert [late_ns(samples), late_ns(samples[2:]), late_ns([])] == [2 * (100 + 70) + 60 + 70, 60 + 70, 0]
    # No call gains more than it can take, and all together no more than the longest copy.
    assert late_ns(samples[1:]) == 100 + 70 + 60 + 70
    assert late_ns(samples[:2]) == 700
    assert late_ns([*samples[:2]] * 20 + samples[2:]) == 700 + 60 + 70


def test_copies_that_stall_in_control_calls_set_no_call_aside() -> None:
    """But calls that stall, too. Where copies stall beside control calls that do not, all calls hold whole copies."""
    spans_ns = [1_000_000, 1_100_000]
    still = time_case(Script(spans_ns=spans_ns, controls_stall=True))
    both = time_case(Script(spans_ns=spans_ns, controls_stall=True, stalled=(False, True)))
    alone = time_case(Script(spans_ns=spans_ns, controls_ns=(10_000.0, math.inf), stalled=(False, True)))
    # All but a few by Laplace; twenty of the shorter half of the calls.
    assert [outcome.details["calls"] for outcome in (still, both)] == [103, 39]
    assert still.details["outside_median_ns"] < 1_100_000
    assert alone.details["outside_median_ns"] >= 2_000_000


@pytest.mark.parametrize("every", range(1, 9))
def test_no_stalls_are_put_down_to_few_control_calls(every: int) -> None:
    """Of which none stalled: more are made before what few can say excuses a submission's stalls.

    Twelve say little of a rate, by chance that there is none.
    """
    stalled = (True, *[False] * (every - 1))
    script = Script(spans_ns=[1_000_000], input_bytes=8 << 20, stalled=stalled, copies_ns=[500_000])
    outcome = time_case(script, timing=Timing(min_runs=100, min_kernel_s=100.0))
    assert (outcome.details["calls"], outcome.details["outside_median_ns"]) == (100, 1_500_000)
    stalls, still = (time_case(replace(script, stalled=(stalls,))) for stalls in (True, False))
    assert stalls.details["controls"] == still.details["controls"] + 80


def test_few_control_calls_say_less_of_stalls_than_many() -> None:
    """Where half of six stalled, two thirds of the calls may by chance; where half of six hundred did, they do not."""
    samples = [Sample(claim_ns=0, outside_ns=100, late_ns=100, stalled=number % 3 > 0) for number in range(300)]
    for count, is_added in ((6, False), (600, True)):
        costs = ControlCosts.of([[10_000.0] * count])
        assert costs is not None
        facts = HandOverFacts.of_controls(costs, stalled=count // 2)
        assert with_copies(samples, facts)[0].with_copy is is_added


@pytest.mark.parametrize(
    ("stalled", "size_ratio", "share"), [(0, 4.0, 0.01), (10, 4.0, 0.35), (50, 4.0, 0.93), (98, 64, 0.99)]
)
def test_outputs_that_are_larger_than_those_of_control_calls_stall_more_often(
    stalled: int, size_ratio: float, share: float
) -> None:
    """A busy host makes each part of a copy stall as often. Where no control call did, no size is an excuse."""
    costs = ControlCosts.of([[10_000.0] * 98])
    assert costs is not None
    facts = HandOverFacts.of_controls(costs, stalled=stalled, size_ratio=size_ratio)
    assert facts.stalled == pytest.approx(share, abs=0.01)
    often = round(100 * (1 - (1 - stalled / 98) ** size_ratio))
    for stalls, is_added in ((often, False), (100, stalled < 50)):
        samples = [Sample(claim_ns=0, outside_ns=100, late_ns=100, stalled=number < stalls) for number in range(100)]
        assert with_copies(samples, facts)[0].with_copy is is_added


def test_calls_that_only_tell_let_no_fewer_calls_be_set_aside() -> None:
    """What disturbs one of a hundred calls would be set aside by none if they made the part smaller."""
    costs = ControlCosts.of([[1e5] * 24])
    assert costs is not None
    alone, calm, crowded = (
        HandOverFacts.of_controls(costs.with_telling(rows), stalled=0) for rows in ([], [[1e5] * 80], [[math.inf] * 80])
    )
    assert (calm.disturbed, calm.slow, calm.seen) == (alone.disturbed, alone.slow, alone.seen)
    assert crowded.disturbed > 0.5
    assert crowded.slow == alone.slow
