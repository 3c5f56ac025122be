"""When a case has been timed for long enough, and what its spread makes of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev

import pytest

from tasks.harness.judge.stopping import Noise, Progress, Stopping, Timing, Waits, noise_of, student_t95

RULE = Stopping(max_kernel_ns=10e9, max_wall_ns=120e9)
STEADY = (1e6, 1.001e6)


def _row(pair: tuple[float, float], count: int) -> list[float]:
    return list(itertools.islice(itertools.cycle(pair), count))


def _progress(samples: Sequence[float], *, judged_ns: float = 0.0, checks_ns: float = 0.0) -> Progress:
    return Progress(
        count=len(samples), mean_ns=fmean(samples), sd_ns=stdev(samples), judged_ns=judged_ns, checks_ns=checks_ns
    )


@pytest.mark.parametrize(
    ("samples", "judged_ns", "checks_ns", "reason"),
    [
        (_row(STEADY, 2), 0.0, 0.0, None),
        (_row(STEADY, 3), 0.0, 0.0, None),
        (_row(STEADY, 20), 0.0, 0.0, "interval"),
        (_row((4e8, 4.001e8), 3), 0.0, 0.0, "interval"),
        (_row((1e6, 2e6), 99), 0.0, 0.0, None),
        (_row((1e6, 2e6), 100), 0.0, 0.0, "runs"),
        (_row((3e9, 4.5e9), 3), 0.0, 0.0, "kernel_time"),
        (_row((1e6, 2e6), 3), 121e9, 0.0, "wall_time"),
        (_row((1e6, 2e6), 2), 121e9, 0.0, None),
        (_row((1e6, 2e6), 3), 0.0, 19.9e9, None),
        (_row((1e6, 2e6), 3), 0.0, 20.1e9, "check_time"),
        (_row((1e6, 2e6), 2), 0.0, 20.1e9, None),
    ],
)
def test_reason(samples: list[float], judged_ns: float, checks_ns: float, reason: str | None) -> None:
    """Three calls at least; then ceilings end it, or a narrow interval of enough calls, or enough time in calls."""
    assert RULE.reason(_progress(samples, judged_ns=judged_ns, checks_ns=checks_ns)) == reason


@pytest.mark.parametrize(
    ("count", "unexplained", "timing", "reason"),
    [
        (39, 1, None, None),
        (40, 1, None, "interval"),
        (99, 4, None, None),
        (100, 4, None, "runs"),
        (9, 1, Timing(min_runs=5), None),
        (10, 1, Timing(min_runs=5), "interval"),
        (23, 1, Timing(min_kernel_s=0.012), None),
        (24, 1, Timing(min_kernel_s=0.012), "interval"),
    ],
)
def test_a_call_that_may_be_the_kernels_own_doubles_the_floors(
    count: int, unexplained: int, timing: Timing | None, reason: str | None
) -> None:
    """Each that is set aside adds the least number of calls, or the least time."""
    rule = Stopping.of(timing, max_kernel_ns=10e9, max_wall_ns=120e9)
    assert rule.reason(replace(_progress(_row(STEADY, count)), unexplained=unexplained)) == reason


@pytest.mark.parametrize(
    ("timing", "count", "judged_ns", "reason"),
    [
        (Timing(max_runs=10), 10, 1.0, "runs"),
        (Timing(min_runs=5), 5, 1.0, "interval"),
        (Timing(min_runs=30), 29, 1.0, None),
        (Timing(min_runs=30, min_kernel_s=0.01), 12, 1.0, "interval"),
        (Timing(max_kernel_s=0.005), 6, 1.0, "kernel_time"),
        (Timing(width=1e-5), 99, 1.0, None),
        (Timing(max_wall_s=0.0), 3, 1.0, "wall_time"),
        # A task may ask for time to pass, for clocks that take theirs …
        (Timing(min_wall_s=1.0), 50, 0.9e9, None),
        (Timing(min_wall_s=1.0), 50, 1.1e9, "interval"),
        # … but does not wait longer than its mode.
        (Timing(max_wall_s=900), 3, 121e9, "wall_time"),
    ],
)
def test_every_part_of_the_rule_can_be_said(timing: Timing, count: int, judged_ns: float, reason: str | None) -> None:
    """What a task says takes the place of the mode's rule, each alone."""
    rule = Stopping.of(timing, max_kernel_ns=10e9, max_wall_ns=120e9)

    assert rule.reason(_progress(_row(STEADY, count), judged_ns=judged_ns)) == reason


@pytest.mark.parametrize(
    ("timing", "longer_ns", "count", "judged_ns", "reason"),
    [
        (None, 1.1e6, 20, 0.5e9, "enough"),
        (None, 1.1e6, 19, 0.6e9, None),
        (None, 1.1e6, 20, 0.4e9, None),
        # A tenth of the mean: 20 calls do not say it so closely, 60 do.
        (None, 1.4e6, 20, 0.6e9, None),
        (None, 1.4e6, 60, 0.6e9, "enough"),
        (Timing(), 1.1e6, 99, 0.6e9, None),
    ],
)
def test_a_case_without_a_rule_of_its_own_ends_when_it_has_taken_the_judge_long(
    timing: Timing | None, longer_ns: float, count: int, judged_ns: float, reason: str | None
) -> None:
    """After the least number of calls, if their mean would not be marked as noisy."""
    rule = Stopping.of(timing, max_kernel_ns=10e9, max_wall_ns=120e9, enough_ns=0.5e9)

    assert rule.reason(_progress(_row((1e6, longer_ns), count), judged_ns=judged_ns)) == reason


def test_the_interval_agrees_with_scipys() -> None:
    """It is Student's, and there is none below three calls."""
    import scipy.stats

    samples = [1e6, 1.2e6, 0.9e6, 4e6, 1.1e6, 1.05e6, 0.95e6]
    so_far = _progress(samples)
    interval = scipy.stats.ttest_1samp(samples, 0).confidence_interval(0.95)

    assert so_far.total_ns == pytest.approx(sum(samples))
    assert so_far.relative_width == pytest.approx((interval.high - interval.low) / fmean(samples), rel=0.002)
    assert _progress([1.0, 2.0]).relative_width == math.inf


@pytest.mark.parametrize("freedom", [2, 3, 5, 19, 99, 999])
def test_students_t_agrees_with_scipy(freedom: int) -> None:
    """Within a hundredth from two degrees of freedom on."""
    import scipy.stats

    assert student_t95(freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), rel=0.01)


def _noise(
    *,
    span_ci95: tuple[float, float] = (99e3, 101e3),
    mean_ci95: tuple[float, float] = (99e3, 101e3),
    waited_ns: float = 0.0,
    disturbed: float,
    runs: int = 100,
    ranked: bool = True,
) -> Noise:
    return noise_of(
        RULE,
        runs=runs,
        mean=100e3,
        mean_ci95=mean_ci95,
        span=100e3,
        span_ci95=span_ci95,
        waits=Waits(span_ns=100e3, waited_ns=waited_ns),
        disturbed=disturbed,
        ranked=ranked,
    )


def test_noise_is_refused_where_the_host_made_it() -> None:
    """A median that could be anything is not reported if calls of trusted code were disturbed, with the reason.

    Of few calls, one that was held up makes the interval as wide as it is.
    """
    noise = _noise(span_ci95=(50e3, 700e3), disturbed=0.4)

    assert noise.refusal is not None
    assert (
        "between 50 µs and 700 µs, and 40% of the calls of a known kernel beside them were disturbed (give the slot"
        in noise.refusal
    )
    assert _noise(span_ci95=(50e3, 700e3), disturbed=0.4, runs=19).refusal is None
    assert _noise(span_ci95=(50e3, 700e3), disturbed=0.4, runs=20).refusal is not None


@pytest.mark.parametrize("disturbed", [0.0, 0.05])
def test_a_kernel_that_is_erratic_by_itself_is_marked(disturbed: float) -> None:
    """Where trusted calls were hardly disturbed, the spread is the kernel's own: its result counts, and says so."""
    assert _noise(span_ci95=(50e3, 700e3), disturbed=disturbed) == Noise(remark=None, refusal=None)
    wide = _noise(span_ci95=(50e3, 700e3), mean_ci95=(80e3, 300e3), disturbed=disturbed)
    assert wide == Noise(remark="the mean lies between 80 µs and 300 µs", refusal=None)


@pytest.mark.parametrize(
    ("waited_ns", "disturbed", "runs", "ranked", "refused"),
    [
        (83e3, 0.4, 100, True, False),
        (84e3, 0.4, 100, True, True),
        (84e3, 0.4, 100, False, False),
        (84e3, 0.4, 19, True, False),
        # A worker's own threads can make it wait, but disturb no control call.
        (99e3, 0.05, 100, True, False),
    ],
)
def test_times_that_are_mostly_waits_for_a_core_are_refused(
    *, waited_ns: float, disturbed: float, runs: int, ranked: bool, refused: bool
) -> None:
    """Where they are more than five times the rest, however little the times vary. Other waits are marked."""
    noise = _noise(waited_ns=waited_ns, disturbed=disturbed, runs=runs, ranked=ranked)
    if refused:
        assert noise.refusal is not None
        assert "of their mean span, 100 µs, up to 84 µs are waits for a core, and 40% of the calls of" in noise.refusal
    else:
        assert noise == Noise(remark=f"up to {waited_ns / 1e3:g} µs of the mean are waits for a core", refusal=None)


def test_a_remark_has_both_reasons() -> None:
    """Waits of up to a tenth of the mean are none."""
    assert _noise(waited_ns=10e3, disturbed=0.0) == Noise(remark=None, refusal=None)
    assert _noise(waited_ns=11e3, mean_ci95=(80e3, 120e3), disturbed=0.0).remark == (
        "the mean lies between 80 µs and 120 µs; up to 11 µs of the mean are waits for a core"
    )
