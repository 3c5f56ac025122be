"""When enough calls of a case have been timed, and whether their times are too noisy to report. Pure.

Standard library only, because the planner writes the rule into the request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from .stats import time_text

_Z95 = NormalDist().inv_cdf(0.975)
#: Fewer samples have no useful spread. No ceiling ends a case before.
FEWEST = 3
#: With fewer calls, one or two delayed calls would decide the width of the median's interval.
FEWEST_FOR_REFUSAL = 20
#: Where more control calls than this share were disturbed, noise is the host's.
DISTURBED_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A task's own values for its timings (`timing` in runner.yml). None leaves the mode's value."""

    width: float | None = None
    min_runs: int | None = None
    max_runs: int | None = None
    min_kernel_s: float | None = None
    max_kernel_s: float | None = None
    min_wall_s: float | None = None
    max_wall_s: float | None = None
    noisy: float | None = None
    refuse: float | None = None


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The rule of one case. Any ceiling ends it after three samples; its interval or `enough_ns`, after the floors."""

    #: Ceilings: timed calls, the sum of their times, what the case takes the judge, and the judge's processor time in
    #: checks: a call that is not checked does not count.
    max_runs: int = 100
    max_kernel_ns: float
    max_wall_ns: float
    max_check_ns: float = 20e9
    #: Floors: the interval is believed after so many calls, or so much time in them; after as many again for each call
    #: that is set aside and may be the kernel's own. Else those cases would end early in which no long call has come.
    min_runs: int = 20
    min_kernel_ns: float = 1e9
    #: The interval does not end a case before this time, for devices whose clocks settle slowly.
    min_wall_ns: float = 0.0
    #: The judge's time after which a case ends that has `min_runs` calls and is not `noisy`.
    enough_ns: float = math.inf
    #: The case ends when the 95 % interval of the mean (Student's t) is at most this part of the mean.
    width: float = 0.004
    #: A result is marked noisy if the bootstrap interval of the mean is wider than this part of it, or waits are.
    noisy: float = 0.1
    #: A result is refused on a disturbed host if the median span's interval is wider than this part of it; a ranked one
    #: also if waits for a core are more than this part of the rest of the spans.
    refuse: float = 5.0

    @classmethod
    def of(
        cls, timing: Timing | None, *, max_kernel_ns: float, max_wall_ns: float, enough_ns: float = math.inf
    ) -> Stopping:
        """The rule of a mode, with a task's own values. A task may not wait longer than the mode does.

        `enough_ns` is for tasks without any.
        """
        rule = cls(
            max_kernel_ns=max_kernel_ns, max_wall_ns=max_wall_ns, enough_ns=enough_ns if timing is None else math.inf
        )
        own = {} if timing is None else {name: value for name, value in vars(timing).items() if value is not None}
        plain = {name: own[name] for name in ("max_runs", "min_runs", "width", "noisy", "refuse") if name in own}
        times = ("max_kernel", "max_wall", "min_kernel", "min_wall")
        in_ns = {f"{name}_ns": 1e9 * own[f"{name}_s"] for name in times if f"{name}_s" in own}
        changed = replace(rule, **plain, **in_ns)
        return replace(changed, max_wall_ns=min(changed.max_wall_ns, max_wall_ns))

    def reason(self, so_far: Progress) -> str | None:
        """Why the case ends: runs, wall_time, kernel_time, check_time, interval or enough; None if it goes on.

        The last two say that more calls would tell little more; the others cut the case short.
        """
        if so_far.count < FEWEST:
            return None
        ceilings = {
            "runs": so_far.count >= self.max_runs,
            "wall_time": so_far.judged_ns > self.max_wall_ns,
            "kernel_time": so_far.total_ns > self.max_kernel_ns,
            "check_time": so_far.checks_ns > self.max_check_ns,
        }
        reached = next((name for name, passed in ceilings.items() if passed), None)
        if reached is not None:
            return reached
        floors = 1 + so_far.unexplained
        few_runs, few_ns = so_far.count < floors * self.min_runs, so_far.total_ns < floors * self.min_kernel_ns
        if (few_runs and few_ns) or so_far.judged_ns < self.min_wall_ns:
            return None
        if so_far.relative_width <= self.width:
            return "interval"
        enough = not few_runs and so_far.relative_width <= self.noisy
        return "enough" if enough and so_far.judged_ns >= self.enough_ns else None

    def refuses_waits(self, waits: Waits) -> bool:
        """Whether waits for a core are too large a part of the spans. Other processes must have had the core, too."""
        return waits.waited_ns > self.refuse * (waits.span_ns - waits.waited_ns)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a case is, by the judge's own clocks."""

    #: Calls that count, mean and standard deviation (n - 1) of their times.
    count: int
    mean_ns: float
    sd_ns: float
    #: Calls that are set aside and may be the kernel's own (`course.unexplained`).
    unexplained: int = 0
    #: What it has taken the judge (`benchmark`), and its processor time in checks.
    judged_ns: float
    checks_ns: float

    @property
    def total_ns(self) -> float:
        """The sum of all times."""
        return self.mean_ns * self.count

    @property
    def relative_width(self) -> float:
        """The 95 % interval of the mean by Student's t, as a part of the mean; infinite below three samples."""
        if self.count < FEWEST:
            return math.inf
        return 2 * student_t95(self.count - 1) * self.sd_ns / math.sqrt(self.count) / self.mean_ns


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Of the calls that count: their mean span, and how much of it judge and worker may have waited for a core."""

    span_ns: float
    waited_ns: float


def student_t95(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, within a hundredth, from two degrees of freedom on.

    Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5).
    """
    z = _Z95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom ** (power + 1) for power, term in enumerate(terms))


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The verdict on the spread of a case's times."""

    #: Why the result is marked noisy, as a sentence; None if it is not.
    remark: str | None
    #: Why the result is refused, as a sentence; None if it is not.
    refusal: str | None


def noise_of(
    rule: Stopping,
    *,
    runs: int,
    mean: float,
    mean_ci95: tuple[float, float],
    span: float,
    span_ci95: tuple[float, float],
    waits: Waits,
    disturbed: float,
    ranked: bool,
) -> Noise:
    """Judge the spread of a case, in ns.

    `mean`: of the times that count; `span`: median of the calls' spans on the judge's clock; each with its interval.
    `disturbed`: share of the control calls that something disturbed. `ranked`: waits alone refuse no other time.
    """
    waited = time_text(waits.waited_ns)
    if runs >= FEWEST_FOR_REFUSAL and disturbed > DISTURBED_SHARE:
        low, high = span_ci95
        reason = None
        if high - low > rule.refuse * span:
            reason = f"their median lies anywhere between {time_text(low)} and {time_text(high)}"
        elif ranked and rule.refuses_waits(waits):
            reason = f"of their mean span, {time_text(waits.span_ns)}, up to {waited} are waits for a core"
        if reason is not None:
            text = (
                f"the times of {runs} calls are noise: {reason}, and {disturbed:.0%} of the calls of a known kernel "
                "beside them were disturbed (give the slot cores of its own, or run fewer other things on this host)"
            )
            return Noise(remark=None, refusal=text)
    remarks = []
    low, high = mean_ci95
    if high - low > rule.noisy * mean:
        remarks.append(f"the mean lies between {time_text(low)} and {time_text(high)}")
    if waits.waited_ns > rule.noisy * mean:
        remarks.append(f"up to {waited} of the mean are waits for a core")
    return Noise(remark="; ".join(remarks) or None, refusal=None)
