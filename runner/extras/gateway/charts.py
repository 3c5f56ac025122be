"""Drawings of a leaderboard's scores: how the best fell with time, and how the users' best are spread. Pure.

Both have a line for the speed of light where it is known. Scores are seconds; their axis is logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from runner.base import units
from runner.base.results import Case, cases

#: The drawing and its plot, in units of its own.
WIDTH: Final = 640
HEIGHT: Final = 220
_LEFT: Final = 70
_RIGHT: Final = 10
_TOP: Final = 12
_BOTTOM: Final = 28
#: How many scores are drawn as dots; the line has all that were the best.
_DOTS: Final = 600
_BINS: Final = 24
#: A speed of light that is further below the best than this is told in words alone.
_FAR: Final = 1e4
#: A case of longer than this, or so many times faster than light, is nonsense of an eval program.
_MOST_NS: Final = 1e21
_MOST_LIGHT: Final = 1e9


@dataclass(frozen=True, kw_only=True)
class Score:
    """One score that counts."""

    at: datetime
    seconds: float
    user_id: str
    user_name: str
    submission_id: int


@dataclass(frozen=True, kw_only=True)
class Label:
    """A word beside an axis."""

    x: float
    y: float
    text: str
    anchor: str = "end"


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What a template makes a picture of."""

    #: Says all that matters to people who do not see it.
    words: str
    labels: Sequence[Label]
    #: Paths of a plot: `line` is drawn, `dots` has round ends alone, `light` is the speed of light.
    line: str = ""
    dots: str = ""
    light: str = ""
    #: x, y, width, height.
    bars: Sequence[tuple[float, float, float, float]] = ()
    width: int = WIDTH
    height: int = HEIGHT


def records(scores: Sequence[Score]) -> list[Score]:
    """Those that were the best when they came, in the order of time."""
    made: list[Score] = []
    for score in sorted(scores, key=lambda item: (item.at, item.submission_id)):
        if not made or score.seconds < made[-1].seconds:
            made.append(score)
    return made


def progression(scores: Sequence[Score], light_s: float | None) -> Drawing | None:
    """The scores over time and the best so far; None where there are less than two."""
    if len(scores) < 2:
        return None
    ordered = sorted(scores, key=lambda item: (item.at, item.submission_id))
    best = records(ordered)
    first, last = ordered[0].at, ordered[-1].at
    span = (last - first).total_seconds() or 1.0
    low, high, shown_light = _range([score.seconds for score in ordered], light_s)

    def across(moment: datetime) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (moment - first).total_seconds() / span, 1)

    def down(seconds: float) -> float:
        return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - _part(seconds, low, high)), 1)

    steps = [f"M{across(best[0].at)} {down(best[0].seconds)}"]
    # Of the records that fall on one pixel, the last: there are no more steps than pixels.
    corners = {int(across(item.at)): item for item in best[1:]}
    steps += [f"H{across(item.at)}V{down(item.seconds)}" for item in corners.values()]
    steps.append(f"H{across(last)}")
    drawn = ordered[:: math.ceil(len(ordered) / _DOTS)]
    labels = [
        Label(x=_LEFT - 6, y=down(high) + 4, text=units.score(high)),
        Label(x=_LEFT - 6, y=down(low) + 4, text=units.score(low)),
        Label(x=_LEFT, y=HEIGHT - 8, text=f"{first:%Y-%m-%d %H:%M}", anchor="start"),
        Label(x=WIDTH - _RIGHT, y=HEIGHT - 8, text=f"{last:%Y-%m-%d %H:%M}"),
    ]
    light = ""
    if shown_light is not None:
        light = f"M{_LEFT} {down(shown_light)}H{WIDTH - _RIGHT}"
        labels.append(Label(x=WIDTH - _RIGHT, y=down(shown_light) - 4, text="speed of light"))
    start, end = units.score(best[0].seconds), units.score(best[-1].seconds)
    words = f"{len(ordered)} scores over time. The best fell from {start} to {end} in {len(best)} steps." + _told(
        light_s
    )
    return Drawing(
        words=words,
        labels=labels,
        line="".join(steps),
        dots="".join(f"M{across(item.at)} {down(item.seconds)}h0" for item in drawn),
        light=light,
    )


def distribution(scores: Sequence[Score], light_s: float | None) -> Drawing | None:
    """How many users' best lie where; None where there are less than two users."""
    bests: dict[str, float] = {}
    for score in scores:
        bests[score.user_id] = min(score.seconds, bests.get(score.user_id, math.inf))
    if len(bests) < 2:
        return None
    values = sorted(bests.values())
    low, high, shown_light = _range(values, light_s)
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, int(_part(value, low, high) * _BINS))] += 1
    step = (WIDTH - _LEFT - _RIGHT) / _BINS
    plot = HEIGHT - _TOP - _BOTTOM
    bars = []
    for index, count in enumerate(counts):
        if count:
            tall = plot * count / max(counts)
            bars.append(
                (round(_LEFT + index * step, 1), round(_TOP + plot - tall, 1), round(step - 1, 1), round(tall, 1))
            )
    labels = [
        Label(x=_LEFT - 6, y=_TOP + 8, text=str(max(counts))),
        Label(x=_LEFT, y=HEIGHT - 8, text=units.score(low), anchor="start"),
        Label(x=WIDTH - _RIGHT, y=HEIGHT - 8, text=units.score(high)),
    ]
    light = ""
    if shown_light is not None:
        place = round(_LEFT + (WIDTH - _LEFT - _RIGHT) * _part(shown_light, low, high), 1)
        light = f"M{place} {_TOP}V{_TOP + plot}"
        labels.append(Label(x=place + 4, y=_TOP + 8, text="speed of light", anchor="start"))
    middle = values[len(values) // 2]
    words = (
        f"The best scores of {len(values)} users: from {units.score(values[0])} to "
        f"{units.score(values[-1])}, the middle one {units.score(middle)}." + _told(light_s)
    )
    return Drawing(words=words, labels=labels, bars=bars, light=light)


def light_of(result: object, ranking_by: str | None) -> float | None:
    """The score of a perfect kernel, in seconds, from a ranked run's cases; None where a case does not state it."""
    benchmarks = [case for case in cases(result) if case.kind == "benchmark"]
    times = [(case.mean_ns or 0) * (case.sol or 0) for case in benchmarks]
    if not times or not all(0 < time < _MOST_NS for time in times):
        return None
    if ranking_by == "last":
        light_ns = times[-1]
    elif ranking_by == "mean":
        light_ns = sum(times) / len(times)
    else:
        light_ns = math.exp(sum(math.log(time) for time in times) / len(times))
    return light_ns / 1e9


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


def _range(values: Sequence[float], light_s: float | None) -> tuple[float, float, float | None]:
    """The ends of an axis that holds the values and, where it is near, the speed of light."""
    low, high = min(values), max(values)
    shown = light_s if light_s is not None and low / _FAR < light_s < high * _FAR else None
    if shown is not None:
        low, high = min(low, shown), max(high, shown)
    if high / low < 1.01:
        low, high = low / 1.05, high * 1.05
    return low, high, shown


def _part(value: float, low: float, high: float) -> float:
    """Where a value stands between the ends, by logarithm: 0 to 1."""
    return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))


def _told(light_s: float | None) -> str:
    return "" if light_s is None else f" The speed of light is {units.score(light_s)}."
