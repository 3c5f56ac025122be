"""Drawings of scores and times, which templates make SVG of. Pure.

Scores are seconds. Their axis is logarithmic unless asked otherwise, and has a line for the speed of light where it is
near.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from runner.base import units
from runner.base.results import Case, number

#: The drawing and its plot, in units of its own.
WIDTH: Final = 440
HEIGHT: Final = 220
_LEFT: Final = 52
_RIGHT: Final = 8
_TOP: Final = 14
_BOTTOM: Final = 22
SPARK_WIDTH: Final = 160
SPARK_HEIGHT: Final = 36
#: The width of a case's line in a table.
SPAN: Final = 120
#: How many scores are drawn as dots; the line has all that were the best.
_DOTS: Final = 600
#: Pixels of the shortest line of a user, less than _RIGHT.
_SHORTEST: Final = 4
#: How many users have a line of their own, unless they are chosen; and how many may be.
_USERS: Final = 5
CHOSEN: Final = 8
#: From so many users on their best scores have a drawing: the ranking itself shows fewer better.
FEWEST_USERS: Final = 8
_BINS: Final = 24
#: A drawing of less than this says the time of day.
_DAYS: Final = timedelta(days=3)
#: A speed of light that is further below the best than this is told in words alone.
_FAR: Final = 1e4
#: Times of one run that differ by more than this are drawn on a logarithmic axis.
_WIDE: Final = 20
#: Scores beyond these, in seconds, are no times of a clock, and are not drawn.
_LEAST_S: Final = 1e-12
_MOST_S: Final = 1e12


def is_time(score: object) -> bool:
    """Whether a clock can have measured a score: others are no records, and are not drawn."""
    return _LEAST_S < (number(score) or 0) < _MOST_S


@dataclass(frozen=True, kw_only=True)
class Score:
    """One score that counts."""

    at: datetime
    seconds: float
    user_id: str
    user_name: str
    submission_id: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Score:
        """A row of `runner.board_scores`, or of a query with the same columns."""
        return cls(
            at=row["submission_time"],
            seconds=float(row["score"]),
            user_id=row["user_id"],
            user_name=row["user_name"] or row["user_id"],
            submission_id=row["submission_id"],
        )


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
    labels: Sequence[Label] = ()
    #: Class and outline of each path; of `dots` only the round ends are seen.
    paths: Sequence[tuple[str, str]] = ()
    #: x, y, width, height.
    bars: Sequence[tuple[float, float, float, float]] = ()
    #: Class of a path, and whose it is.
    legend: Sequence[tuple[str, str]] = ()
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Values between two ends."""

    low: float
    high: float
    logarithmic: bool

    def part(self, value: float) -> float:
        """Where a value stands between the ends: 0 to 1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> Sequence[float]:
        """Round values between the ends, two to seven of them."""
        decades = range(math.floor(math.log10(self.low or self.high)) - 1, math.ceil(math.log10(self.high)) + 1)
        if self.logarithmic:
            for steps in ((1,), (1, 2, 5)):
                values = [step * 10.0**decade for decade in decades for step in steps]
                kept = [value for value in values if self.low <= value <= self.high]
                if len(kept) >= 3:
                    return kept[:: math.ceil(len(kept) / 7)]
        width = (self.high - self.low) / 4
        unit = 10.0 ** math.floor(math.log10(width))
        step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= width)
        first = math.ceil(self.low / step)
        return [step * count for count in range(first, math.floor(self.high / step) + 1)]


def records(scores: Sequence[Score]) -> list[Score]:
    """Those that were the best when they came, in the order of time."""
    best: list[Score] = []
    for score in _in_time(scores):
        if not best or score.seconds < best[-1].seconds:
            best.append(score)
    return best


def progression(
    scores: Sequence[Score],
    light_s: float | None,
    *,
    logarithmic: bool = True,
    users: Sequence[str] = (),
    since: datetime | None = None,
) -> Drawing | None:
    """The scores over time, the best so far, and that of each leading user; None where there are less than two.

    `users`: whose lines and scores are drawn in place of the leaders' and everyone's; `since`: where it begins.
    """
    every = _in_time(scores)
    ordered = [score for score in every if since is None or score.at >= since]
    if len(ordered) < 2:
        return None
    best = _since(records(every), since)
    chosen = [records([score for score in every if score.user_id == user]) for user in users]
    leaders = [its for its in (_since(its, since) for its in chosen or _leaders(every)) if its]
    if users:
        ordered = [score for score in ordered if score.user_id in users]
    first, last = min([score.at for score in (*best, *ordered)]), max(score.at for score in every)
    drawn = [score.seconds for its in (ordered, best, *leaders) for score in its]
    axis = _axis(drawn, light_s, logarithmic=logarithmic)

    def across(moment: datetime) -> float:
        span_s = (last - first).total_seconds() or 1.0
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (moment - first).total_seconds() / span_s, 1)

    def down(seconds: float) -> float:
        return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - axis.part(seconds)), 1)

    def steps(its: Sequence[Score]) -> str:
        # Of the records that fall on the same two pixels, the last: a page holds six lines.
        corners = {int(across(item.at) / 2): item for item in its[1:]}
        line = "".join(f"H{across(item.at)}V{down(item.seconds)}" for item in corners.values())
        start = across(its[0].at)
        # A line that begins at the end is seen, too.
        return f"M{start} {down(its[0].seconds)}{line}H{max(across(last), start + _SHORTEST)}"

    shown = ordered[:: math.ceil(len(ordered) / _DOTS) or 1]
    dots = "".join(f"M{across(item.at)} {down(item.seconds)}h0" for item in shown)
    grid = "".join(f"M{_LEFT} {down(value)}H{WIDTH - _RIGHT}" for value in axis.ticks())
    paths = [("grid", grid), ("dots", dots)]
    several = len(leaders) > 1 or bool(users)
    if several:
        paths += [(f"user{place}", steps(its)) for place, its in enumerate(leaders)]
    paths.append(("line", steps(best)))
    labels = [Label(x=_LEFT - 6, y=down(value) + 4, text=_tick(value)) for value in axis.ticks()]
    day = "%Y-%m-%d" if last - first > _DAYS else "%Y-%m-%d %H:%M"
    labels += [
        Label(x=_LEFT, y=HEIGHT - 6, text=f"{first:{day}}", anchor="start"),
        Label(x=WIDTH - _RIGHT, y=HEIGHT - 6, text=f"{last:{day}}"),
    ]
    if light_s is not None and axis.low <= light_s <= axis.high:
        paths.append(("light", f"M{_LEFT} {down(light_s)}H{WIDTH - _RIGHT}"))
        labels.append(Label(x=WIDTH - _RIGHT, y=down(light_s) - 4, text="speed of light"))
    start, end, falls = units.score(best[0].seconds), units.score(best[-1].seconds), len(best) - 1
    words = f"{len(ordered)} scores over time. The best "
    words += f"fell from {start} to {end} in {falls} step{'s' * (falls > 1)}." if falls else f"stayed at {end}."
    return Drawing(
        words=words + _light_words(light_s),
        labels=labels,
        paths=paths,
        legend=[(f"user{place}", its[0].user_name) for place, its in enumerate(leaders)] if several else (),
    )


def distribution(scores: Sequence[Score], light_s: float | None, *, logarithmic: bool = True) -> Drawing | None:
    """How many users' best lie where; None where there are few users."""
    bests: dict[str, float] = {}
    for score in scores:
        bests[score.user_id] = min(score.seconds, bests.get(score.user_id, math.inf))
    if len(bests) < FEWEST_USERS:
        return None
    values = sorted(bests.values())
    axis = _axis(values, light_s, logarithmic=logarithmic)
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, int(axis.part(value) * _BINS))] += 1
    plot = HEIGHT - _TOP - _BOTTOM
    step = (WIDTH - _LEFT - _RIGHT) / _BINS

    def across(value: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * axis.part(value), 1)

    bars = []
    for index, count in enumerate(counts):
        if count:
            tall = plot * count / max(counts)
            x, y = _LEFT + index * step, _TOP + plot - tall
            bars.append((round(x, 1), round(y, 1), round(step - 1, 1), round(tall, 1)))
    labels = [Label(x=_LEFT - 6, y=_TOP + 8, text=str(max(counts)))]
    labels += [
        Label(x=min(across(value), WIDTH - 24), y=HEIGHT - 6, text=_tick(value), anchor="middle")
        for value in axis.ticks()
    ]
    paths = [("grid", f"M{_LEFT} {_TOP + plot}H{WIDTH - _RIGHT}")]
    if light_s is not None and axis.low <= light_s <= axis.high:
        paths.append(("light", f"M{across(light_s)} {_TOP}V{_TOP + plot}"))
        labels.append(Label(x=across(light_s) + 4, y=_TOP + 8, text="speed of light", anchor="start"))
    words = (
        f"The best scores of {len(values)} users: from {units.score(values[0])} to "
        f"{units.score(values[-1])}, the middle one {units.score(values[len(values) // 2])}."
    )
    return Drawing(words=words + _light_words(light_s), labels=labels, paths=paths, bars=bars)


def sparkline(scores: Sequence[Score]) -> Drawing | None:
    """How the best fell, in a small picture; None where it did not."""
    best = records(scores)
    if len(best) < 2:
        return None
    last = max(score.at for score in scores)
    span_s = (last - best[0].at).total_seconds() or 1.0
    axis = _axis([score.seconds for score in best], None, logarithmic=True)
    points = [
        (
            round(2 + (SPARK_WIDTH - 4) * (item.at - best[0].at).total_seconds() / span_s),
            round(3 + (SPARK_HEIGHT - 6) * (1 - axis.part(item.seconds)), 1),
        )
        for item in best
    ]
    corners = dict(points[1:])
    line = "".join(f"H{x}V{y}" for x, y in corners.items())
    start, end = units.score(best[0].seconds), units.score(best[-1].seconds)
    return Drawing(
        words=f"The best fell from {start} to {end}",
        paths=[("line", f"M{points[0][0]} {points[0][1]}{line}H{SPARK_WIDTH - 2}")],
        width=SPARK_WIDTH,
        height=SPARK_HEIGHT,
    )


def spans(ran: Sequence[Case]) -> Sequence[tuple[str, str, str] | None]:
    """Three outlines for each case that was timed: from best to worst, the mean's interval, and the mean; one axis."""
    every = [value for case in ran for value in _times(case)]
    if not every:
        return [None] * len(ran)
    low, high = min(every), max(every)
    logarithmic = high > low * _WIDE
    axis = Axis(
        low=low / 1.2 if logarithmic else 0.0, high=high * (1.2 if logarithmic else 1.05), logarithmic=logarithmic
    )

    def line(pair: tuple[float | None, float | None]) -> str:
        ends = [end for end in pair if end is not None and low <= end <= high]
        return "" if len(ends) < 2 else f"M{axis.part(ends[0]) * SPAN:.1f} 7H{axis.part(ends[1]) * SPAN:.1f}"

    return [
        None
        if not case.mean_ns or case.mean_ns not in _times(case)
        else (
            line((case.best_ns, case.worst_ns)),
            line(case.mean_ci95_ns or (None, None)),
            f"M{axis.part(case.mean_ns) * SPAN:.1f} 7h0",
        )
        for case in ran
    ]


def phases(named: Iterable[tuple[str, float | None]]) -> Sequence[tuple[str, float, float, str]]:
    """Class, place, width and text of each part of a bar of 100; `named`: milliseconds of each, None where unknown."""
    spent = [(name, value_ms) for name, value_ms in named if value_ms is not None and value_ms >= 0]
    total_ms = sum(value_ms for _, value_ms in spent) or 1.0
    parts, place = [], 0.0
    for name, value_ms in spent:
        width = 100 * value_ms / total_ms
        parts.append((name, round(place, 2), round(width, 2), units.duration(value_ms * 1e6)))
        place += width
    return parts


def _tick(value_s: float) -> str:
    """A round value: without the zeros that show how exact a time is."""
    digits, _, unit = units.score(value_s).partition(" ")
    return f"{float(digits):g} {unit}"


def _in_time(scores: Iterable[Score]) -> list[Score]:
    return sorted(scores, key=lambda item: (item.at, item.submission_id))


def _leaders(ordered: Sequence[Score]) -> Sequence[Sequence[Score]]:
    """The records of each of the fastest users, the fastest first."""
    of_users: dict[str, list[Score]] = {}
    for score in ordered:
        of_users.setdefault(score.user_id, []).append(score)
    return sorted(map(records, of_users.values()), key=lambda its: its[-1].seconds)[:_USERS]


def _since(its: Sequence[Score], since: datetime | None) -> Sequence[Score]:
    """Records from a time on: the last one before it stands at its beginning."""
    if since is None:
        return its
    before = [score for score in its if score.at < since]
    return [*(replace(score, at=since) for score in before[-1:]), *its[len(before) :]]


def _times(case: Case) -> Sequence[float]:
    """The times of a case that can be drawn."""
    pair = case.mean_ci95_ns or ()
    every = (case.mean_ns, case.best_ns, case.worst_ns, *pair)
    return [value for value in every if value is not None and 1e-3 < value < 1e18]


def _axis(values: Sequence[float], light_s: float | None, *, logarithmic: bool) -> Axis:
    """An axis that holds the values and, where it is near, the speed of light; a linear one begins at 0."""
    low, high = min(values), max(values)
    if light_s is not None and low / _FAR < light_s < high * _FAR:
        low, high = min(low, light_s), max(high, light_s)
    if high / low < 1.01:
        low, high = low / 1.05, high * 1.05
    return Axis(low=low if logarithmic else 0.0, high=high, logarithmic=logarithmic)


def _light_words(light_s: float | None) -> str:
    return "" if light_s is None else f" The speed of light is {units.score(light_s)}."
