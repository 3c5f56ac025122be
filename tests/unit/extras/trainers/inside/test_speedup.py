"""Speed-ups from two rows of timed calls."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pytest

from runner.extras.trainers.inside.judge.speedup import Row, speedup_of, stats_of
from tasks.harness.judge.audit import Sample
from tasks.harness.judge.hand_over import Bound

_HAND_OVER_NS = 10_000


def _row(claims_us: Sequence[float], *, span_us: Sequence[float] | None = None, noise_ns: int = 0) -> Row:
    spans = span_us or claims_us
    samples = [
        Sample(claim_ns=round(claim * 1e3), outside_ns=round(span * 1e3) + _HAND_OVER_NS, delayed_ns=0)
        for claim, span in zip(claims_us, spans, strict=True)
    ]
    controls = [[float(_HAND_OVER_NS + sign * noise_ns) for sign in (-1, 0, 1) * 4]]
    return Row(samples=samples, controls_ns=controls)


def test_the_ratio_of_medians_lies_in_its_interval() -> None:
    """Claims that the judge's clock bounds count."""
    found = speedup_of(_row([1000, 1010, 990] * 7), _row([500, 505, 495] * 7), tolerance=0.1)
    assert found.timing == "audited"
    assert found.ratio == pytest.approx(2.0, rel=0.02)
    assert found.low <= found.ratio <= found.high
    assert found.high - found.low < 0.2


def test_a_claim_that_is_too_low_does_not_make_a_candidate_faster() -> None:
    """Both sides are measured then, and the ratio is that of the spans."""
    honest = _row([1000] * 20)
    found = speedup_of(honest, _row([500] * 20, span_us=[1000] * 20), tolerance=0.1)
    assert found.timing == "measured"
    assert found.ratio == pytest.approx(1.0, rel=0.05)
    assert found.low <= 1.0 <= found.high


def test_claims_far_below_the_clock_are_forged() -> None:
    """More than half a call is missing, and more than 0.3 ms."""
    assert speedup_of(_row([2000] * 20), _row([10] * 20, span_us=[2000] * 20), tolerance=0.1).is_forged
    assert not speedup_of(_row([2000] * 20), _row([2000] * 20), tolerance=0.1).is_forged


def test_the_noise_of_the_hand_over_is_in_the_interval_of_short_calls() -> None:
    """What cannot be told apart is not a gain."""
    found = speedup_of(_row([12] * 20, noise_ns=8000), _row([10] * 20, noise_ns=8000), tolerance=0.1)
    assert found.timing == "measured"
    assert found.low <= 1.0 <= found.high


@pytest.mark.parametrize("times_us", [1000, 100, 10])
def test_what_a_candidate_can_leave_out_of_the_harness_is_in_the_interval(times_us: int) -> None:
    """The same module without the harness's own work in its calls is not faster for certain."""
    skipped_us = 3
    cheat = replace(_row([times_us - skipped_us] * 20), skippable_ns=skipped_us * 1e3)
    found = speedup_of(_row([times_us] * 20), cheat, tolerance=0.1)
    assert found.ratio > 1.0
    assert found.low <= 1.0 <= found.high


def test_rows_of_control_calls_are_joined() -> None:
    """A side without control calls has none. Then the whole spans of both count, and no claim does."""
    assert len(_row([1] * 3).joined(_row([2] * 4)).samples) == 7
    bare = Row(samples=_row([1] * 3).samples, controls_ns=None)
    assert bare.joined(_row([1] * 3)).controls_ns is None
    for reference, candidate in ((bare, bare), (bare, _row([0.5] * 20)), (_row([1] * 20), bare)):
        found = speedup_of(reference, candidate, tolerance=0.1)
        assert found.timing == "measured"
        assert min(found.reference_ns, found.candidate_ns) >= _HAND_OVER_NS


def _bounded(claims_us: Sequence[float], *, kernel_us: Sequence[float] | None = None) -> Row:
    """Calls on a device: a calibration bounds each to within 2 microseconds."""
    samples = [
        Sample(
            claim_ns=round(claim * 1e3),
            outside_ns=round(kernel * 1e3) + 280_000,
            bound=Bound(kernel_ns=kernel * 1e3, margin_ns=2_000, bound_ns=kernel * 1e3 - 2_000),
            delayed_ns=0,
        )
        for claim, kernel in zip(claims_us, kernel_us or claims_us, strict=True)
    ]
    return Row(samples=samples, controls_ns=None)


def test_on_a_device_a_calibration_bounds_the_claims() -> None:
    """Not the whole spans count, which are mostly hand-over; a claim that is too low gains nothing."""
    found = speedup_of(_bounded([100] * 20), _bounded([50] * 20), tolerance=0.1)
    assert (found.timing, found.ratio, found.low, found.high) == ("audited", 2.0, 2.0, 2.0)
    forged = speedup_of(_bounded([100] * 20), _bounded([50] * 20, kernel_us=[100] * 20), tolerance=0.1)
    assert forged.timing == "measured"
    assert forged.low <= 1.0 <= forged.high


def test_statistics_are_those_of_the_times_that_count() -> None:
    """Mean, deviation, ends and number."""
    assert stats_of([1000.0, 2000.0, 3000.0]) == {
        "mean_ns": 2000.0, "std_ns": 816.5, "min_ns": 1000.0, "max_ns": 3000.0, "calls": 3,
    }  # fmt: skip


def _slowness(generator: random.Random, *, alike: float, varies: float, waits: float) -> Iterator[tuple[float, int]]:
    """How much longer than usual calls take on a busy machine, and for how many nanoseconds each waits for a core."""
    state = generator.gauss(0, 1)
    while True:
        waited_ns = round(generator.expovariate(1 / 8e6)) if generator.random() < waits else 0
        yield math.exp(varies * state + 0.03 * generator.gauss(0, 1)), waited_ns
        state = alike * state + math.sqrt(1 - alike**2) * generator.gauss(0, 1)


@pytest.mark.parametrize("calls", [10, 20])
@pytest.mark.parametrize("waits", [0.0, 0.5])
@pytest.mark.parametrize(("alike", "varies", "least"), [(0.0, 0.0, 95), (0.5, 0.1, 95), (0.9, 0.1, 88)])
def test_the_interval_of_a_copy_holds_one_on_a_busy_machine(
    alike: float, varies: float, least: int, waits: float, calls: int
) -> None:
    """In 95 of 100 cases, though calls wait for cores; in nearly as many where one is much like the one before it."""
    generator, holds = random.Random(7), 0  # noqa: S311 the same numbers each time
    for _ in range(100):
        slowness = _slowness(generator, alike=alike, varies=varies, waits=waits)
        rows = []
        for count in (calls // 2, calls, calls // 2):
            samples = [
                Sample(claim_ns=round(150e3 * slow), outside_ns=round(180e3 * slow) + wait_ns, delayed_ns=wait_ns)
                for slow, wait_ns in islice(slowness, count)
            ]
            controls = [[math.inf if wait_ns > 20_000 else 30e3 * slow for slow, wait_ns in islice(slowness, 15)]]
            rows.append(Row(samples=samples, controls_ns=controls))
        found = speedup_of(rows[0].joined(rows[2]), rows[1], tolerance=0.1)
        holds += found.low <= 1.0 <= found.high
    assert holds >= least
