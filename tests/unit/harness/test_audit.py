"""What the calls of a case count as."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from tasks.harness.judge.audit import FLOOR_NS, Audit, ControlCosts, Sample, audit, details
from tasks.harness.judge.hand_over import Bound

#: Hand-overs as they are on a quiet machine, in ns, with an interrupt; and such of inputs that are mapped.
COPIED = (*(6_600, 6_800, 6_900, 7_000, 7_100, 7_300, 7_500, 7_600, 7_900, 8_400) * 3, 60_000)
MAPPED = (32_000, 33_000, 33_400, 34_000, 35_500, 36_000, 38_000, 42_000, 46_000, 56_000, 74_800)
CALLS = 100
CONTROLS = 100
ROW = 10


def _costs(like: Sequence[int], count: int, seed: int) -> list[float]:
    return [float(cost) for cost in random.Random(seed).choices(like, k=count)]  # noqa: S311 no secret


def _rows(like: Sequence[int], count: int, seed: int) -> list[list[float]]:
    costs = _costs(like, count, seed)
    return [costs[at : at + ROW] for at in range(0, count, ROW)]


def _case(
    kernel_ns: int, like: Sequence[int], *, claims: Callable[[int], float] = lambda _: 1.0, seed: int = 1
) -> Audit:
    """A case of a kernel that takes so long, of which call number n claims so much of its time."""
    spans = [kernel_ns + round(cost) for cost in _costs(like, CALLS, seed)]
    samples = [
        Sample(claim_ns=round(claims(number) * kernel_ns), outside_ns=span, delayed_ns=0)
        for number, span in enumerate(spans)
    ]
    return audit(samples, controls_ns=_rows(like, CONTROLS, seed + 1000), tolerance=0.1)


FORGERIES: dict[str, Callable[[int], float]] = {
    "all / 50": lambda _: 0.02,
    "all x 0.5": lambda _: 0.5,
    "all x 0.8": lambda _: 0.8,
    "all x 0.9": lambda _: 0.9,
    "a tenth / 50": lambda number: 0.02 if number % 10 == 3 else 1.0,
    "a quarter / 3": lambda number: 1 / 3 if number % 4 == 1 else 1.0,
    "nine in ten x 0.7": lambda number: 0.7 if number % 10 else 1.0,
    "at random": lambda number: random.Random(number).uniform(0.4, 1.0),  # noqa: S311 no secret
    "growing slowly": lambda number: 1.0 - 0.5 * number / CALLS,
}


@pytest.mark.parametrize(
    ("kernel_ns", "like"), [(40_000, COPIED), *itertools.product([100_000, 250_000, 3_000_000], [COPIED, MAPPED])]
)
def test_true_claims_count_as_they_are(kernel_ns: int, like: Sequence[int]) -> None:
    """An honest case is audited where its hand-over is known closely enough, and off by less than that everywhere."""
    found = _case(kernel_ns, like)

    assert found.timing == "audited"
    assert not found.contradicted
    assert not found.is_forged
    assert abs(fmean(found.counted) - kernel_ns) <= max(0.03 * kernel_ns, 3_000)


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("like", [COPIED, MAPPED])
@pytest.mark.parametrize("kernel_ns", [20_000, 40_000, 250_000, 3_000_000, 20_000_000])
def test_a_forged_case_gains_less_than_a_tenth(kernel_ns: int, like: Sequence[int], name: str) -> None:
    """However the claims are lowered: what counts is not a tenth below what the kernel takes, in any of 20 cases."""
    for seed in range(20):
        found = _case(kernel_ns, like, claims=FORGERIES[name], seed=seed)
        assert fmean(found.counted) >= 0.9 * kernel_ns - 300, (seed, found.timing)


def test_a_time_whose_hand_over_is_not_known_closely_is_measured() -> None:
    """It says so, has an interval that holds the truth, and true claims do not count either.

    Nor does a claim of nothing beside a hand-over of 800 µs. The board's tolerance says how closely is enough.
    """
    found = _case(20_000, MAPPED)

    assert found.timing == "measured"
    assert found.interval is not None
    low, high = found.interval
    assert low <= 20_000 <= high
    assert found.noise_ns is not None
    assert found.noise_ns > 0.1 * 20_000
    longer = _case(40_000, (700_000, 760_000, 800_000, 840_000, 880_000), claims=lambda _: 0.02)
    assert longer.timing == "measured"
    assert fmean(longer.counted) >= 0.5 * 40_000
    samples = [Sample(claim_ns=40_000, outside_ns=40_000 + round(cost)) for cost in _costs(MAPPED, CALLS, 1)]
    for tolerance, timing in ((0.5, "audited"), (0.01, "measured")):
        assert audit(samples, controls_ns=_rows(MAPPED, CONTROLS, 2), tolerance=tolerance).timing == timing


def test_a_claim_above_the_measure_counts() -> None:
    """Control calls that cost more than the hand-over of the calls make no honest time shorter than it was claimed.

    None counts as more than passed outside, which would contradict the report's duration; nothing takes no time.
    """
    samples = [Sample(claim_ns=40_000, outside_ns=75_000, delayed_ns=0)] * CALLS
    found = audit(samples, controls_ns=_rows(range(40_000, 60_000, 1_000), 8, seed=1), tolerance=0.01)

    assert (found.timing, set(found.counted)) == ("measured", {40_000.0})
    assert Sample(claim_ns=1 << 61, outside_ns=50_000).claimed_ns == 50_000
    assert Sample(claim_ns=0, outside_ns=50_000).claimed_ns == FLOOR_NS


def test_without_enough_control_calls_nothing_is_known_of_the_hand_over() -> None:
    """Where others had the cores all the time, all that passed counts, and the interval begins at nothing.

    Without any, claims are called so: nothing is replaced, and nothing is said of the noise.
    """
    samples = [Sample(claim_ns=10_000, outside_ns=50_000)] * 20
    found = audit(samples, controls_ns=[[7_000.0] * 3 + [math.inf] * 50], tolerance=0.1)
    assert (found.timing, found.counted[0], found.interval) == ("measured", 50_000.0, (0.0, 100_000.0))
    found = audit(samples, controls_ns=None, tolerance=0.1)
    assert (found.timing, found.counted, found.interval) == ("claimed", (10_000.0,) * 20, None)
    assert audit([], controls_ns=None, tolerance=0.1).counted == ()


def test_one_interrupt_between_kernel_and_end_does_not_count_as_the_kernels() -> None:
    """A call that is not believed counts as the judge measured it; the others keep their claims."""
    samples = [Sample(claim_ns=100_000, outside_ns=107_000) for _ in range(49)]
    samples.append(Sample(claim_ns=100_000, outside_ns=150_000))
    found = audit(samples, controls_ns=_rows(COPIED, CONTROLS, 3), tolerance=0.1)

    assert found.timing == "audited"
    assert found.not_believed == 1
    assert found.counted[:49] == (100_000.0,) * 49
    assert 140_000 < found.counted[49] < 150_000


def test_most_calls_far_too_low_are_forged_and_single_ones_not() -> None:
    """Half of the time and 0.3 ms must be missing in most calls; time in which others had the cores is no evidence.

    Ten hand-overs where those are slow: what makes them slow makes the rest of the worker's own code slow, too.
    """
    honest = Sample(claim_ns=2_000_000, outside_ns=2_007_000, delayed_ns=0)
    low = replace(honest, claim_ns=900_000)
    quick, slow = _rows(COPIED, CONTROLS, 4), [[100_000.0 + index % 5 for index in range(CONTROLS)]]

    def is_forged(*samples: Sample, controls_ns: list[list[float]] = quick) -> bool:
        return audit(samples, controls_ns=controls_ns, tolerance=0.1).is_forged

    assert is_forged(*[low] * 6, *[honest] * 5)
    assert not is_forged(*[low] * 5, *[honest] * 5)
    for delayed_ns in (1_000_000, None):
        assert not is_forged(*[replace(low, delayed_ns=delayed_ns)] * 10)
    for missing_ns, forged in ((900_000, False), (1_200_000, True)):
        sample = Sample(claim_ns=50_000, outside_ns=150_000 + missing_ns, delayed_ns=0)
        assert is_forged(*[sample] * 10, controls_ns=slow) is forged


def test_a_copy_in_the_span_counts_and_accuses_nobody() -> None:
    """A submission is not rejected for the copy of its output, which the judge makes."""
    sample = Sample(
        claim_ns=148_000, outside_ns=148_000 + 7_000 + 900_000, late_ns=900_000, with_copy=True, delayed_ns=0
    )
    result = audit([sample] * 20, controls_ns=_rows(COPIED, CONTROLS, 4), tolerance=0.1)

    assert (result.timing, result.is_forged) == ("measured", False)
    assert min(result.counted) > 1_000_000
    other = replace(sample, with_copy=False)
    assert audit([other] * 20, controls_ns=_rows(COPIED, CONTROLS, 4), tolerance=0.1).is_forged
    # What a stall puts into the span is a copy, too; the stall itself is not.
    for copied_ns, is_forged in ((900_000.0, False), (200_000.0, True)):
        stalled = replace(other, stalled=True, copied_ns=copied_ns)
        assert audit([stalled] * 20, controls_ns=_rows(COPIED, CONTROLS, 4), tolerance=0.1).is_forged is is_forged


@pytest.mark.parametrize(
    ("claim_ns", "margin_ns", "timing", "counted"),
    [
        (980_000, 50_000, "audited", 980_000),
        (980_000, 300_000, "measured", 1_000_000),
        (500_000, 50_000, "measured", 1_000_000),
        (1_100_000, 300_000, "measured", 1_100_000),
    ],
)
def test_claims_beside_a_calibration_count_where_its_margin_is_narrow(
    claim_ns: int, margin_ns: float, timing: str, counted: float
) -> None:
    """Devices and several ranks: a close bound, or the judge's measure, and never less than the claim."""
    bound = Bound(kernel_ns=1_000_000, margin_ns=margin_ns, bound_ns=1_000_000 - margin_ns)
    sample = Sample(claim_ns=claim_ns, outside_ns=1_200_000, bound=bound, delayed_ns=0)
    found = audit([sample] * 10, controls_ns=None, tolerance=0.1)
    assert (found.timing, found.counted[0]) == (timing, counted)


def test_a_claim_that_nothing_bounds_counts_as_its_span_among_claims_that_count() -> None:
    """However many others are bounded closely."""
    close = Sample(
        claim_ns=980_000,
        outside_ns=1_200_000,
        bound=Bound(kernel_ns=1_000_000, margin_ns=50_000, bound_ns=950_000),
        delayed_ns=0,
    )
    forged = replace(close, claim_ns=10_000, bound=Bound.unknown(1_200_000))
    found = audit([close, close, forged] * 4, controls_ns=None, tolerance=0.1)
    assert found.timing == "audited"
    assert list(found.counted) == [980_000, 980_000, 1_200_000] * 4
    assert found.not_believed == 4


def test_disturbed_control_calls_are_counted_and_left_out() -> None:
    """Those that waited for a core, which cost infinitely much, and those that cost far more than the others.

    A single call may cost more than the median by four times its distance to the upper quartile, and 3 µs. Six that
    did not wait are needed, however many did.
    """
    calm, waited = [[7_000.0, 8_000.0, 7_500.0] * 4], [math.inf] * 100
    assert ControlCosts.of(calm) == ControlCosts.of([*calm, []])
    costs = ControlCosts.of([*calm, [math.inf] * 3, [12_400.0, 12_600.0, math.inf]])
    assert costs is not None
    assert (costs.disturbed, costs.count) == (5, 13)
    assert costs.single_ns == 4 * 500 + 3_000
    assert max(costs.mean_ns, costs.sd_ns, costs.error_ns, costs.low_ns) < 10_000
    assert ControlCosts.of([[7_000.0] * 5, waited]) is None
    costs = ControlCosts.of([[7_000.0] * 6, waited])
    assert costs is not None
    assert (costs.mean_ns, costs.error_ns, costs.count, costs.disturbed) == (7_000, 0, 6, 100)


def test_rows_that_differ_are_known_less_closely_than_their_calls() -> None:
    """While the machine drifts, many control calls in few rows say less than as many in a steady machine."""
    steady = ControlCosts.of([[7_000.0, 9_000.0] * 10] * 4)
    drifting = ControlCosts.of([[7_000.0] * 20, [9_000.0] * 20] * 2)

    assert steady is not None
    assert drifting is not None
    assert steady.mean_ns == drifting.mean_ns == 8_000
    assert steady.sd_ns == drifting.sd_ns
    assert drifting.error_ns > 3 * steady.error_ns
    assert drifting.low_ns <= 7_000


def test_disturbed_control_calls_do_not_hide_claims_that_are_all_lowered() -> None:
    """Half of the control calls cost thrice as much, none of the case's do: its lower quarter tells."""
    samples = [Sample(claim_ns=160_000, outside_ns=235_000 + number % 3, delayed_ns=0) for number in range(CALLS)]
    controls = [[35_000.0, 36_000.0, 115_000.0, 34_000.0, 110_000.0, 112_000.0, 35_500.0, 113_000.0]] * 12
    found = audit(samples, controls_ns=controls, tolerance=0.2)

    assert found.noise_ns is not None
    assert found.noise_ns < 0.2 * 160_000
    assert found.timing == "measured"
    assert fmean(found.counted) >= 0.95 * 200_000


def test_the_report_has_what_was_claimed_and_what_the_judge_saw() -> None:
    """Medians, hand-over, what is left unexplained, and its noise."""
    samples = [Sample(claim_ns=100_000, outside_ns=107_000, delayed_ns=5)] * 10
    told = details(samples, audit(samples, controls_ns=[[7_000.0] * 10], tolerance=0.1))

    assert told == {
        "timing": "audited",
        "claimed_median_ns": 100_000,
        "outside_median_ns": 107_000,
        "hand_over_ns": 7_000,
        "excess_ns": 0,
        "noise_ns": 2_500,
        "not_believed": 0,
        "not_exclusive": 0,
        "contradicted": False,
        "delayed_ns": 50,
    }


def test_what_a_worker_need_not_describe_is_subtracted_from_no_time() -> None:
    """A measured time of an output with eight tensors keeps what describing seven of them takes."""
    rows = _rows(COPIED, CONTROLS, 4)
    means = [
        fmean(
            audit(
                [Sample(claim_ns=1_000, outside_ns=200_000, delayed_ns=0, more_tensors=more_tensors)] * CALLS,
                controls_ns=rows,
                tolerance=0.05,
            ).counted
        )
        for more_tensors in (0, 1, 3)
    ]
    assert [later - means[0] for later in means] == pytest.approx([0, 500, 1_500])


def test_half_of_the_claims_lowered_are_seen_before_their_median_gains() -> None:
    """A speed-up is made of medians: nine in twenty claim their whole spans, the others too little."""
    rows = _rows(COPIED, CONTROLS, 4)
    honest = audit(
        [Sample(claim_ns=500_000, outside_ns=500_000 + int(cost), delayed_ns=0) for cost in rows[0]] * 5,
        controls_ns=rows,
        tolerance=0.05,
    )
    assert honest.timing == "audited"
    assert honest.noise_ns is not None
    hand_over_ns = int(fmean(cost for row in rows for cost in row))
    lowered_ns = 500_000 - int(1.1 * honest.noise_ns)
    claims_ns = [500_000 + hand_over_ns] * 9 + [lowered_ns] * 11
    samples = [Sample(claim_ns=claim, outside_ns=500_000 + hand_over_ns, delayed_ns=0) for claim in claims_ns]
    assert audit(samples, controls_ns=rows, tolerance=0.05).timing == "measured"


@pytest.mark.parametrize(
    ("claim_ns", "delayed_ns", "believed"),
    [(100_000, 19_000, True), (100_000, 21_000, False), (2_000_000, 39_000, True), (2_000_000, 41_000, False)],
)
def test_a_call_is_disturbed_by_a_long_wait_for_a_core(claim_ns: int, delayed_ns: int, *, believed: bool) -> None:
    """More than 20 µs, and than 2 % of its span: other processes get a core for some time in a long call."""
    costs = ControlCosts.of([[10_000.0] * 8])
    assert costs is not None
    sample = Sample(claim_ns=claim_ns, outside_ns=claim_ns, delayed_ns=delayed_ns)
    assert costs.believes(sample) == believed
