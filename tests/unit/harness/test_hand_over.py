"""What a calibration says of a call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.harness.judge.audit import Sample, audit
from tasks.harness.judge.calibration import calibrate
from tasks.harness.judge.hand_over import Bound, Costs, HandOver

COSTS = Costs(
    short=HandOver(p25_ns=99_000, median_ns=100_000, p75_ns=105_000),
    long=HandOver(p25_ns=199_000, median_ns=200_000, p75_ns=210_000),
    long_kernel_ns=20_000_000,
    per_tensor_ns=1_000,
    per_input_byte_ns=0.1,
    per_output_byte_ns=0.2,
)


def test_bound_takes_off_the_hand_over_and_a_margin() -> None:
    """The fixed part, what tensors and bytes cost, and a margin that grows with both.

    A judge that sleeps has to be woken up, which costs more than spinning. However wild the calibration, its spread
    widens the margin only so far.
    """
    bound = COSTS.bound(outside_ns=1_000_000, tensors=3, input_bytes=10_000, output_bytes=10_000)

    assert bound.kernel_ns == 1_000_000 - 100_000 - 6_000
    assert bound.margin_ns == 10_000 + 20_000 + 3_000
    assert bound.bound_ns == bound.kernel_ns - bound.margin_ns
    bound = COSTS.bound(outside_ns=50_000_000, tensors=0, input_bytes=0, output_bytes=0)

    assert bound.kernel_ns == 50_000_000 - 200_000
    assert bound.margin_ns == 10_000 + 40_000 + 1_000_000
    wild = HandOver.of([100_000.0] * 5 + [50_000_000.0] * 4)
    costs = replace(COSTS, short=wild)

    assert (wild.p25_ns, wild.median_ns, wild.p75_ns) == (100_000, 100_000, 50_000_000)
    bound = costs.bound(outside_ns=1_000_000, tensors=0, input_bytes=0, output_bytes=0)
    assert bound.margin_ns == 510_000


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999, 1.0])
def test_a_call_whose_hand_over_is_not_known_counts_as_its_span(share: float) -> None:
    """However little of it is claimed."""
    spans = (1_000_000, 1_100_000, 900_000, 30_000)
    samples = [Sample(claim_ns=int(share * span), outside_ns=span, bound=Bound.unknown(span)) for span in spans]
    counted = audit(samples, controls_ns=None, tolerance=0.1)
    assert (counted.timing, counted.counted, counted.is_forged) == ("measured", spans, False)


@pytest.mark.parametrize("lead_ns", [0, 125_000, 150_000, 300_000])
@pytest.mark.parametrize("early", [0.0, 0.5, 1.0])
def test_what_is_done_before_the_common_start_is_in_the_margin(lead_ns: int, early: float) -> None:
    """Ranks have their inputs before they begin: a call that uses that time seems shorter, within the interval."""
    hand_over_ns, kernel_ns = 400_000 + lead_ns, 2_000_000

    def call(value: tuple[object, ...], _: int) -> tuple[int, int]:
        took_ns = value[0] if isinstance(value[0], int) else 0
        return hand_over_ns + took_ns, took_ns

    costs = calibrate(call, most_bytes=1 << 20, lead_ns=lead_ns)
    outside_ns = hand_over_ns + kernel_ns - round(early * lead_ns)
    bound = costs.bound(outside_ns=outside_ns, tensors=1, input_bytes=64, output_bytes=64)
    assert abs(bound.kernel_ns - kernel_ns) <= bound.margin_ns
    assert bound.bound_ns <= kernel_ns - lead_ns
