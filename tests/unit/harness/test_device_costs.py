"""The audit of calls on a device, replayed over calls that real ones made.

Files in `fixtures/devices` hold, for each evaluation, the quartiles of its calibration and the samples of its cases:
claim and span in nanoseconds, and whether the call was exclusive. `h100_calls.jsonl` was recorded on 2026-11-23 on an
NVIDIA H100 80GB HBM3 (docs/measurements.md#an-h100): its first 21 lines before the calibration looked at outputs that
fill the caches. What such outputs cost more is taken there from the case of 4 MiB. The other lines say it themselves.
A record of `python -m tests.gpu` may be put beside it as it is: `h100_layers.jsonl` is one of 2026-11-26, of the layer
`clock`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, median

import pytest

from tasks.harness.judge.audit import Audit, Sample, audit
from tasks.harness.judge.calibration import calibrate_device
from tasks.harness.judge.hand_over import Bound, Costs, DeviceCosts, HandOver
from tests.gpu.recording import rows_of

_RECORDS = sorted((Path(__file__).resolve().parents[2] / "fixtures" / "devices").glob("*.jsonl"))
#: Of the record's case of 4 MiB: the median of its spans less claims and hand-over.
_DIRTY_NS = 3_500.0
#: Output bytes of the tasks' cases, as far as they are not the size of the inputs.
_OUTPUTS = {"amd_fp8_mm": 128 * 576 * 2, "amd_mla_decode": 64 << 10, "amd_moe": 256 << 10}


Recorded = tuple[str, str, DeviceCosts, list[tuple[int, int, bool]], int]


def recorded(paths: Iterable[Path] = _RECORDS) -> Iterator[Recorded]:
    """Evaluation, case, calibration, samples and bytes of output, of all calls that the judge's own work marked."""
    lines = (line for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    for row in (row for line in lines for row in rows_of(json.loads(line))):
        low, middle, high = row["hand_over_ns"]
        if middle is None:
            continue
        hand_over = HandOver(p25_ns=low, median_ns=middle, p75_ns=high)
        costs = DeviceCosts(hand_over=hand_over, dirty_ns=row.get("dirty_ns", _DIRTY_NS))
        for case in row["cases"]:
            arguments = dict(part.split(": ") for part in case["case"].split("; "))
            known = next((nbytes for name, nbytes in _OUTPUTS.items() if row["what"].startswith(name)), None)
            nbytes = known if known is not None else 4 * int(arguments.get("size", "1024"))
            samples = [(claim, span, bool(exclusive)) for claim, span, exclusive in case["samples"]]
            yield row["what"], case["case"], costs, samples, case.get("output_bytes", nbytes)


def replayed(costs: DeviceCosts, samples: list[tuple[int, int, bool]], output_bytes: int) -> Audit:
    """What the judge makes of these calls."""
    return audit(
        [
            Sample(
                claim_ns=claim,
                outside_ns=span,
                exclusive=exclusive,
                bound=costs.bound(outside_ns=span, output_bytes=output_bytes, exclusive=exclusive),
            )
            for claim, span, exclusive in samples
        ],
        controls_ns=None,
        tolerance=0.1,
    )


def test_no_honest_case_of_the_record_is_contradicted_and_long_ones_are_audited() -> None:
    """87 cases of 4 µs to 7 ms, inputs of 4 KiB to 128 MiB: claims count from 75 µs on, the interval holds them all."""
    seen = 0
    for what, case, costs, samples, nbytes in recorded():
        exclusive = [sample for sample in samples if sample[2]]
        if "forged" in what or len(exclusive) < len(samples) / 2:
            continue
        seen += 1
        found = replayed(costs, samples, nbytes)
        claim = fmean(claim for claim, _, _ in samples)
        assert not found.contradicted, (what, case, found)
        assert found.interval is not None
        assert found.noise_ns is not None
        assert found.interval[0] <= claim <= found.interval[1], (what, case)
        # Without a flush the device's clocks differ from call to call, and so does the hand-over. And one calibration
        # of the record fell into a change of the clocks; it would be made again now.
        steady = "flush 0" not in what and "warm" not in what and costs.hand_over.spread_ns < 8_000
        assert found.noise_ns < 7_500 or not steady, (what, case, found.noise_ns)
        if claim > 75_000 and steady:
            assert found.timing == "audited", (what, case, found)
    assert seen >= 87


def test_every_forged_case_of_the_record_ranks_with_what_passed() -> None:
    """Claims of half the time, and claims that leave out 10 to 700 µs, of kernels of 25 µs to 7 ms."""
    seen = 0
    for what, case, costs, samples, nbytes in recorded():
        if "forged" not in what:
            continue
        seen += 1
        found = replayed(costs, samples, nbytes)
        assert found.contradicted, (what, case, found)
        assert found.timing == "measured"
        truth = median(2 * claim if "half" in what else claim + _hidden_ns(what) for claim, _, _ in samples)
        assert fmean(found.counted) > truth - 1_500, (what, case)
    assert seen >= 41


def _hidden_ns(what: str) -> int:
    """How much less than its time a forged case claims, from the name of what ran."""
    found = re.search(r"gains_nothing\[\d+-(\d+)-", what)
    if found is not None:
        return int(found[1]) * 1000
    # There fifty kernels were one call.
    return 400_000 if "test_batches" in what else 10_000


def test_calls_with_work_beside_them_count_as_whole_spans() -> None:
    """A submission that synchronises, a busy thread, a kernel that stays on the device; and solutions that do."""
    seen = set()
    for what, case, costs, samples, nbytes in recorded():
        exclusive = [sample for sample in samples if sample[2]]
        if len(exclusive) > len(samples) / 2:
            continue
        seen.add(what)
        found = replayed(costs, samples, nbytes)
        assert found.timing == "measured", (what, case)
        assert not found.contradicted
        for counted, (claim, span, is_exclusive) in zip(found.counted, samples, strict=True):
            if not is_exclusive:
                assert counted == max(min(claim, span), span)
    assert {"SYNCHRONISES", "BUSY_THREAD", "OCCUPIED"} <= seen


def test_a_calibration_in_which_the_clocks_changed_is_made_again() -> None:
    """The narrowest of three counts, the first that is narrow enough ends them."""
    costs = iter([*[283_600, 291_400] * 20, *[283_600, 283_900] * 20])
    large, seen = iter([287_000] * 22), []

    def call(value: tuple[object, ...], output_capacity: int) -> tuple[int, int]:
        seen.append(output_capacity)
        return 10_000 + (next(large) if output_capacity > 64 else next(costs, 283_700)), 10_000

    found = calibrate_device(call, most_bytes=1 << 30)
    assert found.hand_over.spread_ns < 500
    assert found.dirty_ns == pytest.approx(3_300, abs=200)
    assert seen.count(64) == 2 * 42


@pytest.mark.parametrize(("output_bytes", "expected"), [(0, 100_000), (1 << 20, 98_000), (1 << 30, 96_000)])
def test_an_output_that_fills_the_caches_costs_more(output_bytes: int, expected: float) -> None:
    """In proportion, up to the size from which it costs no more."""
    costs = DeviceCosts(hand_over=HandOver(p25_ns=289_900, median_ns=290_000, p75_ns=290_100), dirty_ns=4_000)
    bound = costs.bound(outside_ns=390_000, output_bytes=output_bytes, exclusive=True)
    assert bound == Bound(kernel_ns=expected, margin_ns=4_900, bound_ns=expected - 5_700)


def test_what_the_worker_could_leave_out_is_in_the_margin() -> None:
    """By message the worker flushes and copies: so much may be hidden, and nothing of it is subtracted."""
    short, long = (HandOver(p25_ns=100, median_ns=100, p75_ns=100) for _ in range(2))
    per = {"per_tensor_ns": 0, "per_input_byte_ns": 1, "per_output_byte_ns": 0}
    costs = Costs(short=short, long=long, long_kernel_ns=1e9, floor_ns=0, **per)
    bound = partial(costs.bound, outside_ns=1_000, tensors=1, input_bytes=200, output_bytes=0)
    assert bound() == Bound(kernel_ns=700, margin_ns=100, bound_ns=600)
    assert bound(skippable=True) == Bound(kernel_ns=1_000, margin_ns=400, bound_ns=300)
