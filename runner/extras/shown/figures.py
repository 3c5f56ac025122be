"""What of a ranked result stands in none of its keys: its interval, and how near it is to the speed of light. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from runner.base import units
from runner.base.results import Case, cases, combined

#: A case of longer than this, or so many times faster than light, is nonsense of an eval program.
_MOST_NS: Final = 1e21
_MOST_LIGHT: Final = 1e9


def interval_of(result: object, ranking_by: str | None) -> float | None:
    """Half the 95 % interval of a score, as a part of it, from the intervals of its cases; None: a case has none.

    The cases' means are independent, so the squares of their errors add up.
    """
    benchmarks = [case for case in cases(result) if case.kind == "benchmark"]
    means_ns, halves_ns = [], []
    for case in benchmarks:
        if case.mean_ns is None or case.mean_ci95_ns is None or not 0 < case.mean_ns < _MOST_NS:
            return None
        means_ns.append(case.mean_ns)
        halves_ns.append((case.mean_ci95_ns[1] - case.mean_ci95_ns[0]) / 2)
    if not means_ns or not all(half_ns >= 0 for half_ns in halves_ns):
        return None
    if ranking_by == "last":
        part = halves_ns[-1] / means_ns[-1]
    elif ranking_by == "mean":
        part = math.hypot(*halves_ns) / sum(means_ns)
    else:
        part = math.hypot(*(half / mean for half, mean in zip(halves_ns, means_ns, strict=True))) / len(means_ns)
    return part if math.isfinite(part) else None


def light_of(result: object, ranking_by: str | None) -> float | None:
    """The score of a perfect kernel, in seconds, from a ranked run's cases; None where a case does not state it."""
    benchmarks = [case for case in cases(result) if case.kind == "benchmark"]
    times_ns = [(case.mean_ns or 0) * (case.sol or 0) for case in benchmarks]
    if not times_ns or not all(0 < time_ns < _MOST_NS for time_ns in times_ns):
        return None
    return combined(times_ns, ranking_by) / 1e9


def roofline(ran: Sequence[Case]) -> str:
    """What a run's cases say together about the speed of light; empty where none does."""
    lit = [(case.sol, case.sol_limit) for case in ran if case.sol is not None and 0 < case.sol < _MOST_LIGHT]
    if not lit:
        return ""
    part = math.exp(sum(math.log(value) for value, _ in lit) / len(lit))
    bounds = [
        f"{limit} in {sum(other == limit for _, other in lit)}" for limit in dict.fromkeys(b for _, b in lit) if limit
    ]
    text = f"Roofline: {units.percent(part)} of the speed of light"
    text += " (geometric mean of the cases)." if len(lit) > 1 else "."
    if part < 1:
        text += f" A perfect kernel would take {units.percent(part)} of the time."
    if bounds:
        text += f" A perfect kernel is bound by {', by '.join(bounds)} of {len(lit)} cases."
    if any(value > 1 for value, _ in lit):
        text += " More than 100 % is seldom honest: caches or narrower units can explain a little."
    return text
