"""The summary of samples, against values worked out by hand and against scipy."""

from __future__ import annotations

import math
import random
from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.harness.judge.stats import median_interval, spread, summarise, time_text


def test_single_sample_has_no_spread() -> None:
    """One sample has a mean and no deviation, and its interval is itself."""
    summary = summarise([7.0])

    assert (summary.mean, summary.std, summary.err, summary.ci95) == (7.0, 0.0, 0.0, (7.0, 7.0))


@pytest.mark.parametrize("samples", [[], [1.0, 0.0], [1.0, -2.0], [math.nan], [math.inf]])
def test_impossible_samples_are_refused(samples: list[float]) -> None:
    """Nothing that is no duration is averaged."""
    with pytest.raises(ValueError, match="samples"):
        summarise(samples)


@pytest.mark.parametrize("count", [2, 7, 100])
def test_summary_agrees_with_scipy(count: int) -> None:
    """Mean, deviation, error and quantiles of skewed samples, as scipy and numpy have them."""
    import scipy.stats

    generator = random.Random(count)  # noqa: S311 a simulation
    samples = [20_000 * generator.lognormvariate(0, 0.3) for _ in range(count)]
    summary = summarise(samples)
    described = scipy.stats.describe(samples)

    assert summary.mean == pytest.approx(described.mean)
    assert summary.std == pytest.approx(math.sqrt(described.variance))
    assert summary.err == pytest.approx(scipy.stats.sem(samples))
    assert (summary.best, summary.worst) == described.minmax
    found = (summary.p10, summary.p25, summary.median, summary.p90)
    assert found == pytest.approx(tuple(scipy.stats.scoreatpercentile(samples, [10, 25, 50, 90])))


@pytest.mark.parametrize("count", [6, 25, 100, 1200, 4000])
def test_median_interval_agrees_with_scipy(count: int) -> None:
    """The interval of scipy's quantile test, of order statistics, too; four times a thousand calls are the most."""
    import scipy.stats

    generator = random.Random(count)  # noqa: S311 a simulation
    samples = sorted(generator.lognormvariate(0, 0.3) for _ in range(count))
    interval = scipy.stats.quantile_test(samples, q=0, p=0.5).confidence_interval(confidence_level=0.95)

    assert median_interval(samples) == pytest.approx((interval.low, interval.high))


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=50))
def test_the_spread_is_that_of_a_population(samples: list[float]) -> None:
    """As the standard library has it, but faster; of nothing it is 0."""
    assert spread(samples) == pytest.approx(pstdev(samples), rel=1e-6, abs=1e-3)
    assert spread([]) == 0


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0.0, "0 ns"), (3.6, "3.6 ns"), (85_630.0, "85.63 µs"), (123_456_789.0, "123.5 ms"), (2.5e9, "2.5 s")],
)
def test_a_time_in_a_sentence_has_four_digits_and_no_exponent(time_ns: float, text: str) -> None:
    """Above ten milliseconds, too."""
    assert time_text(time_ns) == text
