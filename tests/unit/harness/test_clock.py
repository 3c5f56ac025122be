"""What the judge believes of a claimed time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from tasks.harness.clock import (
    FLOOR_NS,
    Bound,
    Costs,
    HandOver,
    KnownCalls,
    Sample,
    audit_details,
    forged,
    known_due,
    suspect,
    tight,
    times,
)

COSTS = Costs(
    short=HandOver(p25_ns=99_000, median_ns=100_000, p75_ns=105_000),
    long=HandOver(p25_ns=199_000, median_ns=200_000, p75_ns=210_000),
    long_kernel_ns=20_000_000,
    per_tensor_ns=1_000,
    per_input_byte_ns=0.1,
    per_output_byte_ns=0.2,
)


def _sample(claim_ns: int, outside_ns: int) -> Sample:
    bound = COSTS.bound(outside_ns=outside_ns, tensors=3, input_bytes=10_000, output_bytes=10_000)
    return Sample(claim_ns=claim_ns, outside_ns=outside_ns, bound=bound, delayed_ns=0)


def test_bound_takes_off_the_hand_over_and_a_margin() -> None:
    """Outside span, less the fixed part, less what tensors and bytes cost, less a margin that grows with both."""
    bound = COSTS.bound(outside_ns=1_000_000, tensors=3, input_bytes=10_000, output_bytes=10_000)

    assert bound.kernel_ns == 1_000_000 - 100_000 - 6_000
    assert bound.margin_ns == 10_000 + 20_000 + 3_000
    assert bound.bound_ns == bound.kernel_ns - bound.margin_ns


def test_calibration_under_load_keeps_its_teeth() -> None:
    """However wild the calibration, its spread widens the margin only so far."""
    wild = HandOver.of([100_000.0] * 5 + [50_000_000.0] * 4)
    costs = replace(COSTS, short=wild)

    assert (wild.p25_ns, wild.median_ns, wild.p75_ns) == (100_000, 100_000, 50_000_000)
    bound = costs.bound(outside_ns=1_000_000, tensors=0, input_bytes=0, output_bytes=0)
    assert bound.margin_ns == 510_000


def test_long_calls_have_a_hand_over_of_their_own() -> None:
    """A judge that sleeps has to be woken up, which costs more than spinning."""
    bound = COSTS.bound(outside_ns=50_000_000, tensors=0, input_bytes=0, output_bytes=0)

    assert bound.kernel_ns == 50_000_000 - 200_000
    assert bound.margin_ns == 10_000 + 40_000 + 1_000_000


def test_a_judge_that_was_woken_late_believes_true_claims() -> None:
    """A core that has slept for long wakes up later than in the calibration; a tenth too little shows all the same."""
    outside_ns = 50_000_000 + 200_000 + 800_000

    assert _sample(50_000_000, outside_ns).believed
    assert not _sample(45_000_000, outside_ns).believed


def test_known_calls_are_made_in_three_rows_within_fifty_calls() -> None:
    """So that the middle one counts also where a case has no more calls than that; later ones watch for changes."""
    assert [count for count in range(1, 200) if known_due(count)] == [5, 25, 45, 85, 125, 165]


def test_honest_claim_is_believed() -> None:
    """A claim at or above the bound counts as it is."""
    sample = _sample(880_000, 1_000_000)

    assert sample.believed
    assert sample.time_ns == 880_000


def test_claim_below_the_bound_is_replaced() -> None:
    """Where the claim is not believed, the judge's own estimate counts."""
    sample = _sample(500_000, 1_000_000)

    assert not sample.believed
    assert sample.time_ns == 894_000
    assert not sample.looks_forged


def test_no_time_falls_below_the_floor() -> None:
    """A claim of nothing, in a span too short to tell, counts as the floor."""
    assert _sample(0, 110_000).time_ns == FLOOR_NS


def test_a_case_is_audited_only_where_the_bound_is_tight() -> None:
    """A time that could be a fifth too low without notice stands on the worker's word."""
    long = [_sample(900_000, 1_000_000)] * 5
    assert tight(times(long))
    assert not tight(times([_sample(15_000, 120_000)] * 5))
    assert not tight(times([*long, replace(long[0], bound=None)]))
    assert not tight(times([]))


def test_forgery_needs_most_calls() -> None:
    """Single calls that were interrupted are no forgery; most of them with a millisecond missing are."""
    honest, bad = _sample(9_800_000, 10_000_000), _sample(1_000, 10_000_000)

    assert bad.looks_forged
    assert not forged([honest] * 5 + [bad] * 5)
    assert forged([bad] * 6 + [honest] * 5)
    assert not forged([])


def test_who_was_kept_from_running_forges_nothing() -> None:
    """Time in which others had the cores is no evidence, nor is a call of which nobody knows."""
    bad = _sample(1_000, 10_000_000)

    assert not replace(bad, delayed_ns=9_500_000).looks_forged
    assert replace(bad, delayed_ns=1_000_000).looks_forged
    assert not replace(bad, delayed_ns=None).looks_forged
    assert not replace(bad, delayed_ns=9_500_000).believed


def test_claims_that_are_all_a_little_too_low_show_in_the_calm_ones() -> None:
    """A tenth off every claim passes call by call and not as a whole: then the judge's estimates count."""
    spans = [1_000_000, 1_001_000, 1_002_000, 1_400_000]
    honest = [_sample(span - 106_000, span) for span in spans]
    forged_ = [_sample(round(0.9 * (span - 106_000)), span) for span in spans]
    found = times(forged_)

    assert not times(honest).contradicted
    assert times(honest).counted == tuple(float(sample.claim_ns) for sample in honest)
    assert found.contradicted
    assert found.counted == tuple(sample.bound.kernel_ns for sample in forged_ if sample.bound is not None)


def test_noise_in_most_calls_contradicts_nobody() -> None:
    """Three calls in four that were held up outside the kernel leave an honest claim as it is."""
    noisy = [_sample(894_000, 1_000_000 + extra) for extra in (0, 0, 300_000, 500_000, 900_000, 40_000)]

    assert not times(noisy).contradicted


AT_THE_GATE = replace(
    COSTS,
    short=HandOver(p25_ns=7_000, median_ns=7_500, p75_ns=8_500),
    per_tensor_ns=100,
    per_input_byte_ns=0.2,
    floor_ns=2_000,
)


def _gated(kernel_ns: int, hand_over_ns: int, *, part: float = 1.0) -> Sample:
    """A call of a kernel that takes so long, of which a part is claimed."""
    outside_ns = kernel_ns + hand_over_ns
    bound = AT_THE_GATE.bound(outside_ns=outside_ns, tensors=1, input_bytes=64, output_bytes=64)
    return Sample(claim_ns=round(part * kernel_ns), outside_ns=outside_ns, bound=bound, delayed_ns=0, gated=True)


#: Hand-overs as they are on a quiet machine, in ns, with an interrupt; and such on a machine that others use.
QUIET = (6_600, 6_800, 6_900, 7_000, 7_100, 7_300, 7_500, 7_600, 7_900, 8_400, 60_000) * 2
BUSY = (16_900, 17_200, 18_000, 19_300, 22_000, 24_500, 31_000, 40_000, 90_000, 400_000, 4_000_000) * 2


def _known(hand_overs: Sequence[int]) -> list[KnownCalls]:
    """Known calls with these costs, in two rows."""
    middle = len(hand_overs) // 2
    return [
        KnownCalls(after=middle // 2, costs_ns=hand_overs[:middle]),
        KnownCalls(after=middle + middle // 2, costs_ns=hand_overs[middle:]),
    ]


@pytest.mark.parametrize("hand_overs", [QUIET, BUSY])
@pytest.mark.parametrize("kernel_ns", [20_000, 50_000, 200_000])
def test_a_tenth_off_every_claim_is_suspected_from_20_us(kernel_ns: int, hand_overs: Sequence[int]) -> None:
    """What no single call shows, the calm ones do beside known ones; then the judge's estimates count."""
    honest = [_gated(kernel_ns, hand_over_ns) for hand_over_ns in hand_overs]
    lower = [_gated(kernel_ns, hand_over_ns, part=0.9) for hand_over_ns in hand_overs]
    acquitted, suspected = (suspect(samples, _known(hand_overs)) for samples in (honest, lower))

    assert not acquitted.founded
    assert acquitted.estimates(honest) == honest
    assert suspected.founded
    corrected = times(suspected.estimates(lower), suspected=True)
    assert corrected.contradicted
    assert median(corrected.counted) >= 0.95 * kernel_ns


def test_a_tenth_off_3_us_is_within_what_is_allowed_for() -> None:
    """Below that nothing is claimed: the margin would catch honest workers."""
    assert not suspect([_gated(3_000, hand_over_ns, part=0.9) for hand_over_ns in QUIET], _known(QUIET)).founded


@pytest.mark.parametrize("drift", [0.5, 3.0])
def test_a_machine_that_has_changed_since_it_was_calibrated_excuses_and_convicts_nobody(drift: float) -> None:
    """Known calls of the same moments are what counts, whatever a hand-over cost when the judge began."""
    now = [round(drift * hand_over_ns) for hand_over_ns in QUIET]

    assert not suspect([_gated(20_000, hand_over_ns) for hand_over_ns in now], _known(now)).founded
    assert suspect([_gated(20_000, hand_over_ns, part=0.9) for hand_over_ns in now], _known(now)).founded


def test_a_machine_that_changes_within_a_case_convicts_nobody() -> None:
    """Known calls of which one row fell into a calm moment, and calls of which most did not."""
    slow = [3 * hand_over_ns for hand_over_ns in QUIET]
    samples = [_gated(20_000, hand_over_ns) for hand_over_ns in (*slow, *slow, *QUIET[:11], *slow)]
    known = [KnownCalls(after=10 + 22 * number, costs_ns=slow[:5]) for number in range(4)]
    known[2] = replace(known[2], costs_ns=QUIET[:5])

    assert not suspect(samples, known).founded


def test_known_calls_acquit_who_a_calibration_of_another_moment_contradicts() -> None:
    """A machine that has become slower since: the span leaves more than is claimed, and known calls tell why."""
    slow = [4 * hand_over_ns for hand_over_ns in QUIET]
    honest = [_gated(100_000, hand_over_ns) for hand_over_ns in slow]

    assert times(honest).contradicted
    found = times(honest, suspected=suspect(honest, _known(slow)).founded)
    assert not found.contradicted
    assert all(counted >= 100_000 for counted in found.counted)


def test_nothing_is_suspected_without_known_calls_or_away_from_the_gate() -> None:
    """A few calls say nothing, and one that went by message is like no known one."""
    lower = [_gated(20_000, hand_over_ns, part=0.5) for hand_over_ns in QUIET]

    assert suspect(lower, _known(QUIET)).founded
    assert suspect(lower, _known(QUIET[:5])).excess_ns is None
    assert suspect(lower, []).excess_ns is None
    assert suspect([*lower, replace(lower[0], gated=False)], _known(QUIET)).excess_ns is None
    assert suspect([], _known(QUIET)).details == {"excess_ns": None, "known_ns": None, "suspected": False}


def test_without_bounds_claims_stand() -> None:
    """Where nothing is audited, what counts is what is claimed, and there is no bound to tell."""
    found = times([Sample(claim_ns=5_000, outside_ns=10_000, bound=None)] * 3)

    assert (found.counted, found.contradicted, found.bound_ns) == ((5_000.0,) * 3, False, None)


def test_unaudited_claims_are_taken_as_they_are() -> None:
    """Without a bound nothing is replaced and nothing is called a forgery."""
    sample = Sample(claim_ns=5_000, outside_ns=10**9, bound=None)

    assert (sample.believed, sample.time_ns, sample.looks_forged) == (True, 5_000, False)
    assert "bound_median_ns" not in audit_details([sample], times([sample]))


@pytest.mark.parametrize("bound", [None, Bound(kernel_ns=30, margin_ns=10, bound_ns=20)])
def test_no_claim_counts_as_more_than_passed_outside(bound: Bound | None) -> None:
    """A forged claim of years must not make a report that contradicts its own duration."""
    assert Sample(claim_ns=1 << 61, outside_ns=50_000, bound=bound).time_ns == 50_000


def test_details_hold_claims_and_bounds() -> None:
    """The report shows what was claimed and what the judge saw."""
    sample = Sample(claim_ns=5, outside_ns=50, bound=Bound(kernel_ns=30, margin_ns=10, bound_ns=20))

    assert audit_details([sample], times([sample])) == {
        "claimed_median_ns": 5,
        "outside_median_ns": 50,
        "not_believed": 1,
        "judge_median_ns": 30,
        "bound_median_ns": 20,
        "margin_median_ns": 10,
        "delayed_ns": 0,
        "bound_calm_ns": 0.0,
        "contradicted": False,
    }
