"""The summary of repeated timings. Pure, standard library only.

Durations are nanoseconds as floats, because a mean of integers need not be an integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Statistics of samples. Every field but `runs` is in nanoseconds."""

    runs: int
    mean: float
    #: Sample standard deviation (n - 1); 0 for a single sample.
    std: float
    #: Standard error of the mean: std / sqrt(runs).
    err: float
    best: float
    worst: float
    median: float
    p10: float
    p25: float
    p90: float
    #: A 95 % confidence interval of the median.
    ci95: tuple[float, float]


def summarise(samples_ns: Sequence[float]) -> Summary:
    """Summarise samples.

    Raises:
        ValueError: no samples, or one that is not a finite, positive number.
    """
    if not samples_ns:
        raise ValueError("no samples to summarise")
    if not all(math.isfinite(sample) and sample > 0 for sample in samples_ns):
        raise ValueError("samples must be finite and positive")
    ordered = sorted(samples_ns)
    count = len(ordered)
    mean = math.fsum(ordered) / count
    std = math.sqrt(math.fsum((sample - mean) ** 2 for sample in ordered) / (count - 1)) if count > 1 else 0.0
    return Summary(
        runs=count,
        mean=mean,
        std=std,
        err=std / math.sqrt(count),
        best=ordered[0],
        worst=ordered[-1],
        median=quantile(ordered, 0.5),
        p10=quantile(ordered, 0.1),
        p25=quantile(ordered, 0.25),
        p90=quantile(ordered, 0.9),
        ci95=median_interval(ordered),
    )


def time_text(time_ns: float) -> str:
    """A time in a sentence: up to four digits in the unit that suits it."""
    scale, unit = next((each for each in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if time_ns >= each[0]), (1.0, "ns"))
    return f"{time_ns / scale:.4g} {unit}"


def spread(samples: Sequence[float]) -> float:
    """The standard deviation of a population; 0 for none. `statistics` takes exact fractions, and ten times as long."""
    if not samples:
        return 0.0
    mean = math.fsum(samples) / len(samples)
    return math.sqrt(math.fsum((sample - mean) ** 2 for sample in samples) / len(samples))


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """A quantile of sorted samples, linear between neighbours (type 7 of Hyndman and Fan, 1996; numpy's default)."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """A distribution-free interval that holds the true median with at least 95 % probability, from sorted samples.

    The number of samples below the median is binomial (n, 1/2), so the interval is between two order statistics
    (Le Boudec, Performance Evaluation of Computer and Communication Systems, 2010, section 2.2.2). With fewer than
    six samples no such pair exists and the whole range is given.
    """
    count = len(ordered)
    tail, skip = 0.0, 0
    while skip < count // 2:
        tail += math.comb(count, skip) / 2**count
        if 2 * tail > 0.05:
            break
        skip += 1
    # `skip` samples may be dropped at each end; the k-th smallest and largest remain the bounds.
    low = max(skip - 1, 0)
    return ordered[low], ordered[count - 1 - low]
