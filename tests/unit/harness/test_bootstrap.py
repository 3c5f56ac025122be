"""The interval of a mean, against scipy."""

from __future__ import annotations

import random

import pytest

from tasks.harness.judge.bootstrap import mean_interval


@pytest.mark.parametrize("count", [8, 100])
def test_it_agrees_with_scipy(count: int) -> None:
    """Both ends, within a tenth of the interval's width (both draw resamples); the same samples have the same one."""
    import scipy.stats

    generator = random.Random(1)  # noqa: S311 a simulation
    # As timings are: a floor, a long tail above it.
    samples = [20_000 + generator.expovariate(1 / 800) for _ in range(count)]
    low, high = mean_interval(samples)
    theirs = scipy.stats.bootstrap((samples,), lambda data, axis: data.mean(axis=axis), method="BCa", rng=1)
    expected = theirs.confidence_interval

    assert low == pytest.approx(expected.low, abs=0.1 * (expected.high - expected.low))
    assert high == pytest.approx(expected.high, abs=0.1 * (expected.high - expected.low))
    assert mean_interval(samples) == (low, high)


@pytest.mark.parametrize("samples", [[5.0], [5.0] * 10, [5.0, 6.0, 5.0]])
def test_few_and_equal_samples_have_one_too(samples: list[float]) -> None:
    """It holds their mean; that of equal ones has no width."""
    low, high = mean_interval(samples)
    assert low <= sum(samples) / len(samples) <= high
    assert (low == high) is (len(set(samples)) == 1)
