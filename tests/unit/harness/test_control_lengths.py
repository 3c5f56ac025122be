"""How long the kernels of control calls take: as long as the case's, or they would find warmer caches."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tasks.harness.judge.stats import quantile
from tasks.harness.judge.stopping import Timing
from tests.support.scripted_workers import Outcome, Script, time_case

_HAND_OVER_NS = 10_000


def _rows(outcome: Outcome) -> list[tuple[int, int]]:
    """Number of calls and length of the kernel, of each row of control calls."""
    rows = []
    for what, *more in outcome.done:
        if what == "control":
            count, *_, kernel_ns = more
            assert isinstance(count, int)
            assert isinstance(kernel_ns, int)
            rows.append((count, kernel_ns))
    return rows


def _lengths(spans_ns: Sequence[int]) -> set[int]:
    return {kernel_ns for _, kernel_ns in _rows(time_case(Script(spans_ns=spans_ns)))}


@pytest.mark.parametrize("call_ns", [150_000, 400_000, 1_000_000, 4_900_000])
def test_they_take_as_long_as_the_calls(call_ns: int) -> None:
    """In steps, so that they seldom change, which would make a call by message."""
    lengths = _lengths([call_ns + _HAND_OVER_NS])
    assert len(lengths) <= 2
    assert all(call_ns / 1.25 <= length <= call_ns + _HAND_OVER_NS for length in lengths)


def test_short_ones_take_no_time_of_their_own_and_long_ones_five_milliseconds() -> None:
    """Below 100 µs no difference is seen; above 5 ms caches grow no colder."""
    assert _lengths([99_000]) == {0}
    (longest,) = _lengths([300_000_000])
    assert 4_000_000 <= longest <= 5_000_000


def test_slow_calls_before_the_first_row_are_no_measure_of_its_length() -> None:
    """The two that warm a kernel up write memory that is new, and take up to three times as long.

    A submission knows which calls come before the row, and could make the hand-over seem colder than it is.
    """
    outcome = time_case(Script(spans_ns=[*[3_000_000] * 2, *[1_000_000] * 100_000]))
    assert max(length for _, length in _rows(outcome)) <= 1_000_000
    assert outcome.details["controls"] == sum(count for count, _ in _rows(outcome))
    script = Script(spans_ns=[*[50_000_000] * 5, *[1_000_000] * 100_000], controls_cold=0.02)
    outcome = time_case(script)
    (first, longest), *others = _rows(outcome)
    assert longest > 4_000_000
    assert {length for _, length in others if length > 1_000_000} == set()
    assert outcome.details["controls"] == sum(count for count, _ in others)
    assert first > 0
    assert outcome.details["hand_over_ns"] <= _HAND_OVER_NS + 0.02 * 1_000_000


def test_a_colder_hand_over_is_in_no_time() -> None:
    """It costs 2 % of each kernel here, and claims count as they are."""
    call_ns = 1_000_000
    script = Script(spans_ns=[round(1.02 * call_ns) + _HAND_OVER_NS], claims_ns=[call_ns], controls_cold=0.02)
    outcome = time_case(script, tolerance=0.03)
    assert outcome.details["timing"] == "audited"
    assert abs(outcome.details["excess_ns"]) <= 0.005 * call_ns


@pytest.mark.parametrize("seed", range(30))
def test_those_that_count_are_no_longer_than_three_of_four_calls(seed: int) -> None:
    """Whatever calls a submission makes long: what is subtracted is what kernels of that length cost."""
    generator = random.Random(seed)  # noqa: S311 scripts
    choices = [generator.randrange(50_000, 8_000_000) for _ in range(generator.randrange(1, 4))]
    spans_ns = [generator.choice(choices) for _ in range(5_000)]
    outcome = time_case(Script(spans_ns=spans_ns, controls_cold=0.02))
    calls = outcome.details["calls"]
    length_ns = 1.25 * max(quantile(sorted(spans_ns[2 : 2 + calls]), 0.25), 100_000)
    counted = [(count, kernel_ns) for count, kernel_ns in _rows(outcome) if kernel_ns <= length_ns]
    assert outcome.details["controls"] <= sum(count for count, _ in counted)
    hand_over_ns = outcome.details["hand_over_ns"]
    assert hand_over_ns is None or hand_over_ns <= _HAND_OVER_NS + 0.02 * length_ns


@pytest.mark.parametrize("call_ns", [150_000, 1_000_000, 4_000_000, 300_000_000])
def test_beside_other_processes_short_ones_tell_the_hand_over(call_ns: int) -> None:
    """Where each long one waits for a core: else nothing would be subtracted or set aside, after five rows a time."""
    spans_ns, delayed_ns = [call_ns + _HAND_OVER_NS, 3 * call_ns], [0, 2 * call_ns]
    waits = Script(spans_ns=spans_ns, delayed_ns=delayed_ns, controls_wait_from_ns=20_000)
    outcome = time_case(waits)
    rows = _rows(outcome)
    assert outcome.details["hand_over_ns"] == _HAND_OVER_NS
    assert outcome.details["set_aside"] >= outcome.details["calls"] // 4
    long = sum(kernel_ns > 0 for _, kernel_ns in rows)
    # One long row before the calls, between them and at the end.
    assert long <= 2 + outcome.details["calls"] // 20
    assert len(rows) - long <= 1


@pytest.mark.parametrize("hand_over_ns", [60_000, 100_000, 300_000, 3_000_000])
@pytest.mark.parametrize("call_ns", [110_000, 300_000, 1_000_000])
def test_the_hand_over_is_no_part_of_their_length(hand_over_ns: int, call_ns: int) -> None:
    """Before the first row it is not known; a row that was too long for it is made again at once, and never counts."""
    script = Script(
        spans_ns=[round(1.02 * call_ns) + hand_over_ns],
        claims_ns=[call_ns],
        controls_ns=[hand_over_ns],
        controls_cold=0.02,
        input_bytes=1 << 20,
    )
    outcome = time_case(script, timing=Timing(min_runs=100, min_kernel_s=100.0))
    (_, first_ns), *rows = _rows(outcome)
    assert first_ns <= 1.25 * call_ns or rows[0][0] == 8
    assert {count for count, _ in rows[1:]} == {6 if call_ns < 300_000 else 4}
    assert all(kernel_ns <= 1.25 * call_ns for _, kernel_ns in rows)
    controls = sum(count for count, kernel_ns in _rows(outcome) if kernel_ns <= 1.25 * call_ns)
    assert outcome.details["controls"] == controls
    assert outcome.details["hand_over_ns"] <= hand_over_ns + 0.02 * 1.25 * call_ns
