"""More about a series of timings than its summary: an interval of the mean, a drift, the share of outliers. Pure.

numpy in float64, on the calling thread alone: a few milliseconds for a hundred samples. torch's arithmetic would use
other threads, which are needed elsewhere. Without median, quantile and unique: they import numpy.ma, which takes ten
times as long as all else here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import torch

from .stats import quantile
from .stopping import student_t95

#: Resamples of the bootstrap. With a thousand the ends of a 95 % interval vary by a few hundredths of its width.
RESAMPLES = 1_000
#: The normal approximation of Kendall's statistic holds from about ten samples on.
FEWEST_FOR_DRIFT = 10
#: Tukey's fences: so many interquartile ranges beyond a quartile (Exploratory Data Analysis, 1977).
FENCE = 1.5

_NORMAL = NormalDist()

_Samples = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Whether samples grow or shrink with time."""

    #: From the first to the last sample along the Theil-Sen line, as a part of the median.
    change: float
    #: The probability of an order as uneven as this one by chance (Mann-Kendall, two-sided).
    p: float


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Results for a case's samples, in the order they were taken."""

    #: A 95 % confidence interval of the mean, by bootstrap; nanoseconds.
    mean_ci95: tuple[float, float]
    #: None where there are too few samples to tell.
    drift: Drift | None
    #: The part of the samples that lies beyond Tukey's fences.
    outliers: float


def examine(samples_ns: Sequence[float]) -> Findings:
    """Examine samples in the order they were taken.

    Raises:
        ValueError: no samples.
    """
    if not samples_ns:
        raise ValueError("no samples to examine")
    samples = np.asarray(samples_ns, dtype=np.float64)
    return Findings(mean_ci95=_mean_interval(samples), drift=_drift(samples), outliers=_outliers(samples))


def _mean_interval(samples: _Samples) -> tuple[float, float]:
    """Bias-corrected and accelerated (Efron, Better Bootstrap Confidence Intervals, JASA 82, 1987), or Student's.

    Timings are skewed, so a symmetric interval would be wrong on both sides. But no mean of resamples lies beyond the
    samples, as the true mean of three does once in four times: neither end is nearer than Student's. Equal samples have
    equal resamples, so that a report can be reproduced.
    """
    count, mean = len(samples), float(samples.mean())
    deviations = samples - mean
    squares = float((deviations**2).sum())
    if squares == 0:
        return mean, mean
    # On this thread, as torch's generators are. The import of numpy's would draw random numbers (see `preload`).
    picks = torch.randint(count, (RESAMPLES, count), generator=torch.Generator().manual_seed(0))
    means = samples[picks.numpy()].mean(axis=1)
    below = float((means < mean).mean() + (means <= mean).mean()) / 2
    bias = _NORMAL.inv_cdf(min(max(below, 0.5 / RESAMPLES), 1 - 0.5 / RESAMPLES))
    # The jackknife's values of a mean differ from it by -deviation / (n - 1), a factor that cancels.
    acceleration = float((deviations**3).sum()) / (6 * squares**1.5)
    ends = []
    for share in (0.025, 0.975):
        at = bias + _NORMAL.inv_cdf(share)
        ends.append(_NORMAL.cdf(bias + at / (1 - acceleration * at)))
    low, high = _quantiles(means, *ends)
    half = student_t95(max(count - 1, 2)) * math.sqrt(squares / (count - 1) / count)
    return max(min(low, mean - half), 0.0), max(high, mean + half)


def _drift(samples: _Samples) -> Drift | None:
    """Mann-Kendall with its correction for ties, and the Theil-Sen line (Hirsch, Slack and Smith, WRR 18, 1982)."""
    count = len(samples)
    if count < FEWEST_FOR_DRIFT:
        return None
    earlier, later = np.triu_indices(count, k=1)
    rises = samples[later] - samples[earlier]
    score = float(np.sign(rises).sum())
    ties = sum(tie * (tie - 1) * (2 * tie + 5) for tie in Counter(samples.tolist()).values())
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    (slope,), (middle,) = _quantiles(rises / (later - earlier), 0.5), _quantiles(samples, 0.5)
    return Drift(
        change=slope * (count - 1) / middle,
        p=math.erfc(abs(score) / math.sqrt(2 * variance)) if variance > 0 else 1.0,
    )


def _outliers(samples: _Samples) -> float:
    low, high = _quantiles(samples, 0.25, 0.75)
    reach = FENCE * (high - low)
    return float(((samples < low - reach) | (samples > high + reach)).mean())


def _quantiles(samples: _Samples, *shares: float) -> list[float]:
    ordered = np.sort(samples).tolist()
    return [quantile(ordered, share) for share in shares]
