"""Statistics and the stopping rule, against values worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from tasks.harness.stats import Stopping, median_interval, summarise


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


RULE = Stopping(total_ns=10e9, wall_ns=120e9)


@pytest.mark.parametrize(
    ("samples", "wall_ns", "enough"),
    [
        ([1e6, 1e6], 0.0, False),
        ([1e6, 1e6, 1e6], 0.0, True),
        ([1e6, 2e6, 3e6], 0.0, False),
        ([1e6, 2e6] * 50, 0.0, True),
        ([1e6, 2e6] * 49, 0.0, False),
        ([3e9, 4e9, 3.5e9], 0.0, True),
        ([1e6, 2e6, 3e6], 121e9, True),
        ([1e6, 2e6], 121e9, False),
    ],
)
def test_stopping(samples: list[float], wall_ns: float, *, enough: bool) -> None:
    """Three at least, a hundred at most; a small error, 10 s in all or 120 s of wall clock end it."""
    assert RULE.enough(samples, wall_ns=wall_ns) is enough
