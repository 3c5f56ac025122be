"""Which calls count where a device's clocks were held down now and then."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from sandbox.protocol import FrameError, Reading
from tasks.harness.judge.throttling import MAX_ASIDE, DeviceUnsteady, Moment, Readings, Span, ThrottleFilter, reasons

HOT = "hw_thermal_slowdown"
MS = 1_000_000


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(110, 120, (), id="calm on both sides"),
        pytest.param(190, 195, (HOT,), id="before heat"),
        pytest.param(150, 350, (HOT,), id="heat within"),
        pytest.param(210, 250, (HOT,), id="after heat"),
        pytest.param(310, 320, (), id="calm again"),
        pytest.param(390, 500, (), id="after the last"),
        pytest.param(10, 20, (), id="before all"),
    ],
)
def test_a_call_counts_if_no_reading_around_it_says_otherwise(start: int, end: int, expected: tuple[str, ...]) -> None:
    """The last reading before it, those within, the first one after."""
    moments = [
        Moment(at_ns=at_ns, reading=Reading(held=(HOT,) if at_ns == 200 else ())) for at_ns in (100, 125, 200, 300, 400)
    ]
    assert reasons(moments, start, end) == expected


def told(moments: list[tuple[int, bool]], readings: Readings | None = None) -> Readings:
    """Readings with moments of their own, some of them hot."""
    readings = readings or Readings()
    for at_ns, hot in moments:
        readings.tell(Reading(at_ns=at_ns, held=(HOT,) if hot else (), noted=("sw_power_cap",), sm_clock_mhz=1500.0))
    return readings


def test_without_readings_everything_counts() -> None:
    """The device is not sampled: nothing is set aside, nothing is waited for, and the report says so.

    More slow calls than may be set aside are no measurement: the message says how many and why.
    """
    throttle_filter = ThrottleFilter[int](Readings())
    spans = [Span(sample=number, start_ns=number, end_ns=number + 1) for number in range(5)]
    assert throttle_filter.apply(spans) == spans
    assert throttle_filter.details == {"clocks": None}
    now = time.monotonic_ns() - 4_000 * MS
    times = [now + n * MS for n in range(MAX_ASIDE + 3)]
    with pytest.raises(DeviceUnsteady, match=rf"{MAX_ASIDE + 2} of {MAX_ASIDE + 2} calls .*{HOT}"):
        ThrottleFilter[int](told([(at, True) for at in times])).apply(spans_between(times))


def spans_between(moments_ns: list[int]) -> list[Span[int]]:
    """A call between each two moments."""
    return [Span(sample=n, start_ns=a + 1, end_ns=b - 1) for n, (a, b) in enumerate(pairwise(moments_ns))]


def test_what_heat_has_slowed_is_set_aside_counted_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest counts; a power cap is noted and sets nothing aside; asked again, nothing is set aside twice."""
    # However long a busy machine holds this up, the readings are of the moments that they name.
    monkeypatch.setattr("tasks.harness.judge.throttling._OLDEST_NS", 10**15)
    throttle_filter = ThrottleFilter[int](readings := Readings())
    now = time.monotonic_ns()
    times = [now + n for n in range(0, 600, 100)]
    while time.monotonic_ns() <= times[-1]:
        pass
    told([(at, at == times[2]) for at in times], readings)
    kept = throttle_filter.apply(spans_between(times))
    assert [span.sample for span in kept] == [0, 3, 4]
    assert throttle_filter.apply(kept) == kept
    clocks = throttle_filter.details["clocks"]
    assert (clocks["set_aside"], clocks["reasons"], clocks["noted"]) == (2, {HOT: 2}, ["sw_power_cap"])
    assert clocks["sm_clock_mhz"] == {"min": 1500.0, "max": 1500.0}


def test_an_impossible_moment_is_the_one_it_arrived_at() -> None:
    """A reading from the future, or from long ago, is taken for one of now; time does not go back."""
    before = time.monotonic_ns()
    readings = told([(before + 10**12, False), (5, False), (before, False)])
    found = [moment.at_ns for moment in readings.until(0)]
    assert before <= found[0] <= found[1] <= found[2] <= time.monotonic_ns()


@pytest.mark.parametrize(
    "wrong", [{"held": "heat"}, {"held": [1]}, {"sm_clock_mhz": "fast"}, {"power_w": True}, {"at_ns": 1.5}]
)
def test_a_reading_is_checked(wrong: dict[str, object]) -> None:
    """What the daemon sends is read with its types; what it never sends is refused."""
    message = Reading(at_ns=1, held=(HOT,), power_w=1.5).to_message()
    assert Reading.from_message(message) == Reading(at_ns=1, held=(HOT,), power_w=1.5)
    with pytest.raises(FrameError):
        Reading.from_message(message | wrong)
