"""Bootstrap, drift and outliers, against scipy."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest

from tasks.harness.judge.trends import FEWEST_FOR_DRIFT, examine


def _skewed(count: int, seed: int = 1, *, growth: float = 0.0) -> list[float]:
    """Samples as timings are: a floor, a long tail above it; `growth`: from the first to the last."""
    generator = random.Random(seed)  # noqa: S311 a simulation
    return [20_000 * (1 + growth * i / count) + generator.expovariate(1 / 800) for i in range(count)]


@pytest.mark.parametrize("count", [8, 100])
def test_each_end_is_the_bootstraps_or_students(count: int) -> None:
    """Whichever is farther from the mean, as scipy has them; within a tenth of the width, as both draw resamples."""
    import scipy.stats

    samples = _skewed(count)
    low, high = examine(samples).mean_ci95
    bootstrap = scipy.stats.bootstrap((samples,), lambda data, axis: data.mean(axis=axis), method="BCa", rng=1)
    ends = [bootstrap.confidence_interval, scipy.stats.ttest_1samp(samples, 0).confidence_interval(0.95)]
    near = 0.1 * (ends[0].high - ends[0].low)

    assert low == pytest.approx(min(end.low for end in ends), abs=near)
    assert high == pytest.approx(max(end.high for end in ends), abs=near)


@pytest.mark.parametrize("count", [3, 4, 6, 20])
@pytest.mark.parametrize(("sigma", "least"), [(0.01, 280), (0.3, 265)])
def test_the_interval_holds_the_true_mean_of_few_samples_too(count: int, sigma: float, least: int) -> None:
    """In 95 of 100 cases, in nearly as many of skewed times: three samples alone held it in 70."""
    generator, truth = random.Random(3), math.exp(sigma**2 / 2)  # noqa: S311 a simulation
    pairs = (examine([generator.lognormvariate(0, sigma) for _ in range(count)]).mean_ci95 for _ in range(300))
    assert sum(low <= truth <= high for low, high in pairs) >= least


def test_the_same_samples_have_the_same_interval_above_zero() -> None:
    """A report can be worked out again; no time is below zero, and nothing is said of nothing."""
    assert examine([1.0, 1.0, 9.0]).mean_ci95[0] == 0.0
    samples = _skewed(50)

    assert examine(samples) == examine(samples)
    with pytest.raises(ValueError, match="no samples"):
        examine([])


@pytest.mark.parametrize("growth", [0.0, 0.03, -0.2])
@pytest.mark.parametrize("rounding", [1, 500])
def test_drift_agrees_with_scipy(growth: float, rounding: int) -> None:
    """Mann-Kendall is Kendall's tau of time against order, with ties and without; the slope is Theil and Sen's."""
    import scipy.stats

    samples = [rounding * round(sample / rounding) + 0.0 for sample in _skewed(60, growth=growth)]
    order = list(range(len(samples)))
    drift = examine(samples).drift

    assert drift is not None
    assert drift.p == pytest.approx(scipy.stats.kendalltau(order, samples, method="asymptotic").pvalue, abs=1e-9)
    slope = scipy.stats.theilslopes(samples, order).slope
    assert drift.change == pytest.approx(slope * 59 / scipy.stats.scoreatpercentile(samples, 50), abs=1e-9)


def test_drift_is_told_from_noise() -> None:
    """A tenth more from first to last is seen, samples without a trend are left alone."""
    grows, flat = examine(_skewed(100, growth=0.1)).drift, examine(_skewed(100)).drift

    assert grows is not None
    assert flat is not None
    assert grows.p < 1e-6
    assert flat.p > 0.01
    assert grows.change == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("samples", [[5.0], [5.0] * FEWEST_FOR_DRIFT, [5.0, 6.0, 5.0]])
def test_samples_without_news(samples: list[float]) -> None:
    """One sample, equal ones, or few: an interval without width, no drift, nothing far out."""
    found = examine(samples)

    assert found.mean_ci95[0] <= sum(samples) / len(samples) <= found.mean_ci95[1]
    assert found.drift is None or (found.drift.change, found.drift.p) == (0.0, 1.0)
    assert found.outliers == 0.0


def test_outliers_are_those_beyond_tukeys_fences() -> None:
    """The share agrees with quartiles and interquartile range as scipy has them."""
    import scipy.stats

    samples = [*_skewed(95), *(90_000.0 + i for i in range(5))]
    low, high = scipy.stats.scoreatpercentile(samples, [25, 75])
    reach = 1.5 * scipy.stats.iqr(samples)
    expected = sum(not low - reach <= sample <= high + reach for sample in samples) / 100

    assert expected >= 0.05
    assert examine(samples).outliers == pytest.approx(expected)


def test_nothing_is_imported_when_a_case_is_examined() -> None:
    """Functions of numpy that import numpy.ma would take ten times as long as all else, in every judge."""
    program = (
        "import sys, random; from tasks.harness.judge.trends import examine; before = set(sys.modules); "
        "examine([20_000 + random.expovariate(1 / 800) for _ in range(100)]); print(sorted({*sys.modules} - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]"
