"""Numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from runner.base import units


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (None, "-"),
        (0.0, "0.00 ns"),
        (512.4, "512 ns"),
        (1234.0, "1.23 µs"),
        (12_345.0, "12.3 µs"),
        (999_600.0, "1.00 ms"),
        (123_456_789.0, "123 ms"),
        (2.5e9, "2.50 s"),
        (3.6e12, "3600 s"),
    ],
)
def test_a_duration_is_shown_in_the_unit_that_suits_it(value_ns: float | None, text: str) -> None:
    """Three significant digits, never an exponent, never 1000 of a smaller unit."""
    assert units.duration(value_ns) == text


def test_the_uncertainty_is_in_the_unit_of_the_mean() -> None:
    """Both numbers share one unit, so that they can be compared at a glance. A score is in seconds."""
    assert units.spread(12_345.0, (12_225.0, 12_465.0)) == "12.3 ± 0.12 µs"
    assert units.spread(12_345.0, None) == "12.3 µs"
    assert units.spread(None, (1.0, 2.0)) == units.score(None) == "-"
    assert units.score(2.8e-6) == "2.80 µs"


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3.0, "0 s"), (7.4, "7 s"), (200.0, "3 min"), (7300.0, "2 h"), (3 * 86400.0, "3 d")]
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    """Clocks that differ never give a negative age."""
    assert units.age(seconds) == text


def test_moments_are_shown_in_utc() -> None:
    """A time of another zone is converted, not relabelled."""
    summer = datetime(2030, 7, 1, 14, 30, tzinfo=timezone(timedelta(hours=2)))
    assert units.moment(summer) == "2030-07-01 12:30:00"
    assert units.moment(datetime(2030, 1, 1, tzinfo=UTC)) == "2030-01-01 00:00:00"
    assert units.moment(None) == "-"
