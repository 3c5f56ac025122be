"""What the tools make of the gateway's JSON."""

from __future__ import annotations

import pytest

from runner.extras.mcp import reading


def timed(submission_id: int, mean_ns: float, **facts: object) -> reading.TimedRun:
    """A submission with one timed case."""
    case = {"mean_ns": mean_ns, "mean_ci95_ns": [0.99 * mean_ns, 1.01 * mean_ns], "timing": None, "bounds_ns": None}
    case |= facts
    return reading.TimedRun(submission_id=submission_id, gpu_type="CPU", mode="benchmark", cases={"n: 1": case})


def test_a_kernel_that_is_thousands_of_times_faster() -> None:
    """Its ratio has digits."""
    compared = reading.comparison(timed(1, 1234.0), timed(2, 1e7))
    said = "Of 1 cases: faster in 1. Over all it takes 0.000123 times the other's time (geometric mean)."
    assert (compared.cases[0].times_other, compared.summary) == (0.0001234, said)


@pytest.mark.parametrize(
    ("timing", "bounds_ns", "this_is"),
    [
        (None, None, "faster"),
        ("audited", [5_000.0, 9_000.0], "faster"),
        ("measured", [6_900.0, 7_100.0], "faster"),
        ("measured", [5_000.0, 9_000.0], "cannot be told"),
    ],
)
def test_a_measured_time_is_less_where_the_judges_bounds_say_so(
    timing: str | None, bounds_ns: list[float] | None, this_is: str
) -> None:
    """Calls that differ little say nothing of the hand-over that is subtracted from all of them."""
    runs = [timed(number, mean_ns, timing=timing, bounds_ns=bounds_ns) for number, mean_ns in ((1, 7e3), (2, 7.5e3))]
    assert reading.comparison(*runs).cases[0].this_is == this_is
