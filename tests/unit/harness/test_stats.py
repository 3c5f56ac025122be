"""The summary of samples, against values worked out by hand and against scipy."""

from __future__ import annotations

import math
import random

import pytest

from tasks.harness.judge.stats import median_interval, summarise


def test_summary_of_known_samples() -> None:
    """Every number of a summary, for samples whose statistics are easy to check."""
    summary = summarise([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])

    assert (summary.runs, summary.mean, summary.best, summary.worst, summary.median) == (8, 5.0, 2.0, 9.0, 4.5)
    assert summary.std == pytest.approx(math.sqrt(32 / 7))
    assert summary.err == pytest.approx(summary.std / math.sqrt(8))
    assert summary.p10 == pytest.approx(3.4)
    assert summary.p90 == pytest.approx(7.6)


def test_single_sample_has_no_spread() -> None:
    """One sample has a mean and no deviation, and its interval is itself."""
    summary = summarise([7.0])

    assert (summary.mean, summary.std, summary.err, summary.ci95) == (7.0, 0.0, 0.0, (7.0, 7.0))


@pytest.mark.parametrize("samples", [[], [1.0, 0.0], [1.0, -2.0], [math.nan], [math.inf]])
def test_impossible_samples_are_refused(samples: list[float]) -> None:
    """Nothing that is no duration is averaged."""
    with pytest.raises(ValueError, match="samples"):
        summarise(samples)


def test_median_interval_by_order_statistics() -> None:
    """The ranks of published tables: (1, 6) of 6, (2, 9) of 10, (40, 61) of 100."""
    assert median_interval([float(i) for i in range(1, 7)]) == (1.0, 6.0)
    assert median_interval([float(i) for i in range(1, 11)]) == (2.0, 9.0)
    assert median_interval([float(i) for i in range(1, 101)]) == (40.0, 61.0)


def test_median_interval_covers_the_median() -> None:
    """Of many samples with a known median, at least 93 in 100 intervals hold it."""
    generator = random.Random(7)  # noqa: S311 a simulation
    hits = 0
    for _ in range(400):
        low, high = median_interval(sorted(generator.expovariate(math.log(2)) for _ in range(25)))
        hits += low <= 1.0 <= high
    assert hits >= 372


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
    found = (summary.p10, summary.median, summary.p90)
    assert found == pytest.approx(tuple(scipy.stats.scoreatpercentile(samples, [10, 50, 90])))


@pytest.mark.parametrize("count", [6, 25, 100])
def test_median_interval_agrees_with_scipy(count: int) -> None:
    """The interval of scipy's quantile test, which is made of order statistics, too."""
    import scipy.stats

    generator = random.Random(count)  # noqa: S311 a simulation
    samples = sorted(generator.lognormvariate(0, 0.3) for _ in range(count))
    interval = scipy.stats.quantile_test(samples, q=0, p=0.5).confidence_interval(confidence_level=0.95)

    assert median_interval(samples) == pytest.approx((interval.low, interval.high))
