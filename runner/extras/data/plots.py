"""Plots of a board's submissions, as matplotlib figures of 1200 by 675 pixels.

Every function takes rows of one problem on one runner, and rows of that problem that never ranked. Axes of times are
logarithmic and name their unit. Colours are those of Okabe and Ito, which colour-blind readers tell apart; series also
differ in their markers. Text of users is shown as text: no formula is read from it, and control characters are escapes.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import matplotlib as mpl
import pandas as pd
from matplotlib import dates as mdates
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from runner.base.errors import DataError, NotFoundError
from runner.extras.data.shipped.analyze_submissions import format_score, printable, top_contestants, valid

WIDTH_PX: Final = 1200
HEIGHT_PX: Final = 675
_DPI: Final = 100
#: Okabe and Ito's palette without yellow, which is too faint on white, in the order of use.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_LINES: Final = ("-", "--", "-.", ":")
#: Behind text that stands on bars.
_PLATE: Final = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
_GREY: Final = "#6b6b6b"
_FAINT: Final = "#d0d0d0"
_DARK: Final = "#222222"
#: Lines that are no user's.
_RULE: Final = "#4a4a4a"
#: How much the products of score and `sol` may differ: `sol` has four digits.
_SAME_LIGHT: Final = 1e-3
#: Characters of a name beside a line, and below it.
_LABEL_LENGTH: Final = 17
_TICK_LENGTH: Final = 16
#: Families with characters that DejaVu lacks; those that are installed are used.
_FALLBACKS: Final = ("Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Emoji", "WenQuanYi Zen Hei")
_UNITS: Final = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))


@dataclass(frozen=True, kw_only=True)
class Board:
    """One problem on one runner, the subject of a plot."""

    problem: str
    runner: str
    #: All rows of the problem on the runner, and those that never ranked. A user without a name has the id for one.
    rows: pd.DataFrame
    #: The score of a perfect kernel in seconds; None where it is unknown.
    light_s: float | None

    @property
    def scored(self) -> pd.DataFrame:
        """The rows with a valid score, by time."""
        return self.rows[valid(self.rows)].sort_values(["submission_time", "submission_id"], kind="stable")

    @property
    def title(self) -> str:
        """The board's name, as text."""
        return f"{_short(self.problem, 40)} on {_short(self.runner, 30)}"


def board_of(rows: pd.DataFrame, problem: str, runner: str) -> Board:
    """One board of an export.

    Raises:
        NotFoundError: there is no valid score.
    """
    mine = rows[(rows["problem_name"] == problem) & (rows["runner"].eq(runner) | rows["runner"].isna())]
    if not valid(mine).any():
        raise NotFoundError(f"{printable(problem)} has no score on {printable(runner)}")
    mine = mine.assign(user_name=mine["user_name"].where(mine["user_name"] != "", mine["user_id"].astype(str)))
    return Board(problem=problem, runner=runner, rows=mine, light_s=light_of(mine))


def light_of(rows: pd.DataFrame) -> float | None:
    """The score of a perfect kernel in seconds: score times `sol`, where it is the same in all valid rows.

    `sol` is the geometric mean, over the cases, of the part of the speed of light that each reaches. So score times
    `sol` depends on the row where the score is the mean or the last of several cases. Then, and without `sol`, None.
    """
    if "sol" not in rows.columns:
        return None
    scored = rows[valid(rows) & (rows["sol"] > 0) & (rows["sol"] < math.inf)]
    lights = scored["score"] * scored["sol"]
    median = lights.median()
    return float(median) if len(lights) and (lights / median - 1).abs().max() <= _SAME_LIGHT else None


# -- the plots -------------------------------------------------------------------------------------------------------


def race(board: Board, *, count: int = 8) -> Figure:
    """The best score of each of the `count` best users over time, all other users in grey, and the board's record."""
    scored = board.scored
    ranking = top_contestants(scored, n=count)
    end = scored["submission_time"].max()
    with _drawing(board, "best score per user over time") as (figure, axes):
        others = scored[~scored["user_id"].isin(ranking["user_id"])]
        lines = [_steps(group, end) for _, group in others.groupby("user_id", sort=True)]
        if lines:
            segments = [list(zip(mdates.date2num(times), scores, strict=True)) for times, scores in lines]
            axes.add_collection(LineCollection(segments, colors=_FAINT, linewidths=0.8, zorder=1))
        labels = []
        for place, line in enumerate(ranking.itertuples()):
            colour, marker, dashes = _style(place)
            times, scores = _steps(scored[scored["user_id"] == line.user_id], end)
            axes.plot(times, scores, color=colour, linestyle=dashes, linewidth=1.8, zorder=4)
            axes.plot(times[:-1:2], scores[:-1:2], marker, color=colour, markersize=4.5, zorder=5)
            labels.append(
                (
                    line.score,
                    f"{line.rank}  {_short(line.user_name, _LABEL_LENGTH)}  {format_score(line.score, 'auto')}",
                    colour,
                )
            )
        times, scores = _steps(scored, end)
        axes.plot(times, scores, color=_DARK, linewidth=5, alpha=0.18, zorder=3, label="the board's record")
        axes.plot([], [], color=_FAINT, linewidth=1.5, label="other users")
        _time_axis(axes)
        firsts, bests = scored.drop_duplicates("user_id")["score"], scored.groupby("user_id")["score"].min()
        _score_axis(axes.yaxis, [*bests, *firsts, *_light(board)])
        _light_line(axes, board, horizontal=True)
        _end_labels(axes, labels)
        axes.legend(loc="upper right")
        _facts(figure, f"{_many(len(scored), 'score')} of {_many(scored['user_id'].nunique(), 'user')}")
    return figure


def progression(board: Board, users: Sequence[str]) -> Figure:
    """The scores of some users over time: each score, each record, and below the attempts that did not rank.

    `users`: user ids, at most seven.

    Raises:
        NotFoundError: one of them has no row on the board.
    """
    end = board.rows["submission_time"].max()
    with _drawing(board, "scores and records over time", strip=len(users)) as (figure, axes):
        strip = figure.axes[1]
        labels, names, everything, missed = [], [], [], 0
        for place, user in enumerate(users):
            mine = board.rows[board.rows["user_id"].astype(str) == user]
            if mine.empty:
                raise NotFoundError(f"user {printable(user)} has no submission on {printable(board.problem)}")
            mine = mine.sort_values(["submission_time", "submission_id"], kind="stable")
            name = _short(mine["user_name"].iloc[-1], _LABEL_LENGTH)
            names.append(_short(mine["user_name"].iloc[-1], _TICK_LENGTH))
            colour, marker, dashes = _style(place)
            scored, failed = mine[valid(mine)], mine[~valid(mine)]
            missed += len(failed)
            strip.plot(failed["submission_time"], [place] * len(failed), "x", color=colour, markersize=6)
            if scored.empty:
                continue
            axes.scatter(
                scored["submission_time"], scored["score"], s=14, color=colour, alpha=0.35, linewidths=0, zorder=2,
                marker=marker,
            )  # fmt: skip
            times, scores = _steps(scored, end)
            axes.plot(times, scores, color=colour, linestyle=dashes, linewidth=1.6, zorder=3)
            axes.plot(
                times[:-1:2], scores[:-1:2], marker, color=colour, markersize=7, markeredgecolor="white", zorder=4
            )
            everything += [*scored["score"]]
            labels.append((scores[-1], f"{name}  {format_score(scores[-1], 'auto')}", colour))
        strip.set_yticks(range(len(users)), names)
        strip.set_ylim(len(users) - 0.4, -0.6)
        strip.set_title(
            "attempts that did not rank: failed, or never meant to", loc="left", fontsize=11, color=_GREY, pad=4
        )
        axes.plot([], [], "o", color=_DARK, markersize=7, label="record of the user")
        axes.plot([], [], "o", color=_DARK, alpha=0.35, markersize=4, linewidth=0, label="other score")
        _time_axis(strip)
        axes.tick_params(labelbottom=False)
        _score_axis(axes.yaxis, [*everything, *_light(board)])
        _light_line(axes, board, horizontal=True)
        _end_labels(axes, labels)
        axes.legend(loc="upper right")
        _facts(figure, f"{_many(len(everything), 'score')}, {_many(missed, 'attempt')} without")
    return figure


def distribution(board: Board) -> Figure:
    """How the scores, and the best scores of the users, spread over times."""
    scored = board.scored["score"]
    best = board.scored.groupby("user_id")["score"].min()
    low, high = math.log10(min([scored.min(), *_light(board)])), math.log10(scored.max())
    margin = max(0.02, (high - low) * 0.03)
    low, high, bars = low - margin, high + margin, 60
    edges = [10 ** (low + (high - low) * step / bars) for step in range(bars + 1)]
    with _drawing(board, "distribution of scores") as (figure, axes):
        axes.hist(scored, bins=edges, color=COLOURS[5], label=f"all scores ({len(scored):,})")
        axes.hist(
            best, bins=edges, histtype="stepfilled", color=COLOURS[0], label=f"best score of each user ({len(best):,})"
        )
        axes.set_yscale("log")
        most = axes.get_ylim()[1] * 1.5
        axes.set_ylim(0.7, most)
        _log_ticks(axes.yaxis, 0.7, most, lambda value: f"{value:,.0f}")
        axes.set_ylabel("number (logarithmic)")
        axes.set_xlim(edges[0], edges[-1])
        _score_axis(axes.xaxis, edges)
        middle = float(best.median())
        for value, text, colour in (
            (float(best.min()), f"best {format_score(best.min(), 'auto')}", _DARK),
            (middle, f"median of the users {format_score(middle, 'auto')}", _DARK),
        ):
            axes.axvline(value, color=colour, linewidth=1.2, linestyle=":")
            axes.annotate(
                text, (value, 1), (4, -8), xycoords=("data", "axes fraction"), textcoords="offset points", rotation=90,
                va="top", fontsize=10, color=colour, bbox=_PLATE,
            )  # fmt: skip
        _light_line(axes, board, horizontal=False)
        axes.legend(loc="upper right")
        _facts(figure, f"{_many(len(scored), 'score')} of {_many(len(best), 'user')}")
        figure.subplots_adjust(right=0.97)
    return figure


def draw(kind: str, board: Board, *, users: Sequence[str] = (), count: int | None = None) -> Figure:
    """The plot of a kind: race, progression or distribution.

    `users`: for progression, user ids; none: the `count` best, five by default. Of a race `count` is eight by default.

    Raises:
        NotFoundError: a user has no row on the board.
        DataError: more users than can be told apart.
    """
    if kind == "race":
        return race(board, count=count or 8)
    if kind == "distribution":
        return distribution(board)
    shown = list(users) or [str(user) for user in top_contestants(board.scored, n=count or 5)["user_id"]]
    if len(shown) > len(COLOURS):
        raise DataError(f"{len(shown)} users are too many for one plot, expected at most {len(COLOURS)}")
    return progression(board, shown)


def to_png(figure: Figure) -> bytes:
    """The figure as PNG, 1200 pixels wide. Equal figures give equal bytes with one release of matplotlib."""
    return _saved(figure, "png", {"Software": None})


def to_svg(figure: Figure) -> bytes:
    """The figure as SVG, with its text as text and without anything from elsewhere; equal figures give equal bytes."""
    picture = _saved(figure, "svg", {"Date": None, "Creator": "kernel-runner"})
    # The document type is an address elsewhere.
    return re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", picture, count=1)


# -- drawing ---------------------------------------------------------------------------------------------------------


@contextmanager
def _settings() -> Iterator[None]:
    """Settings of matplotlib's and ours, whatever a user's matplotlibrc says."""
    present = set(font_manager.get_font_names())
    settings = {
        "font.family": ["DejaVu Sans", *(name for name in _FALLBACKS if name in present)],
        "font.size": 12,
        # A dollar sign in a name begins no formula.
        "text.parse_math": False,
        "text.usetex": False,
        "axes.unicode_minus": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _GREY,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "legend.fontsize": 10,
        "xtick.color": _GREY,
        "xtick.labelcolor": _DARK,
        "ytick.color": _GREY,
        "ytick.labelcolor": _DARK,
        "svg.fonttype": "none",
        "svg.hashsalt": "kernel-runner",
        "figure.facecolor": "white",
        "timezone": "UTC",
    }
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        yield


@contextmanager
def _drawing(board: Board, what: str, *, strip: int = 0) -> Iterator[tuple[Figure, Any]]:
    """A figure with its title and one pair of axes; with `strip` a second pair of that many rows below."""
    with _settings():
        figure = Figure(figsize=(WIDTH_PX / _DPI, HEIGHT_PX / _DPI), dpi=_DPI)
        FigureCanvasAgg(figure)
        if strip:
            share = 0.035 * strip + 0.02
            grid = figure.add_gridspec(2, 1, height_ratios=[1 - share, share], hspace=0.12)
            axes = figure.add_subplot(grid[0])
            figure.add_subplot(grid[1], sharex=axes)
        else:
            axes = figure.add_subplot()
        figure.subplots_adjust(left=0.085 if not strip else 0.15, right=0.75, top=0.885, bottom=0.11)
        figure.text(0.02, 0.955, f"{board.title}: {what}", fontsize=16, weight="bold", va="center", color=_DARK)
        yield figure, axes


def _saved(figure: Figure, form: str, metadata: Mapping[str, str | None]) -> bytes:
    target = BytesIO()
    with _settings(), warnings.catch_warnings():
        # A character that no installed font has is shown as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(target, format=form, dpi=_DPI, metadata=dict(metadata))
    return target.getvalue()


def _facts(figure: Figure, text: str) -> None:
    figure.text(0.02, 0.912, f"{text}; lower is better", fontsize=11, va="center", color=_GREY)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _short(name: object, length: int) -> str:
    text = printable(name)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _style(place: int) -> tuple[str, str, str]:
    """Colour, marker and line of the nth series; no two of the first 28 are equal."""
    turn = place // len(COLOURS)
    return COLOURS[place % len(COLOURS)], _MARKERS[(place + turn) % len(_MARKERS)], _LINES[turn % len(_LINES)]


def _steps(scored: pd.DataFrame, end: pd.Timestamp) -> tuple[list[Any], list[float]]:
    """The corners of a running minimum until `end`; every second one, but the last, is a record."""
    times: list[Any] = []
    scores: list[float] = []
    for when, score in zip(scored["submission_time"], scored["score"], strict=True):
        if scores and score >= scores[-1]:
            continue
        if scores:
            times.append(when)
            scores.append(scores[-1])
        times.append(when)
        scores.append(float(score))
    return [*times, end], [*scores, scores[-1]]


def _light(board: Board) -> list[float]:
    return [] if board.light_s is None else [board.light_s]


def _light_line(axes: Any, board: Board, *, horizontal: bool) -> None:  # noqa: ANN401 matplotlib has no types here
    """The speed of light as a dashed line with its name."""
    if board.light_s is None:
        return
    style = {"color": _RULE, "linewidth": 1.4, "linestyle": (0, (8, 4)), "zorder": 2}
    text = f"speed of light {format_score(board.light_s, 'auto')}"
    if horizontal:
        axes.axhline(board.light_s, **style)
        axes.annotate(
            text, (0, board.light_s), (6, 5), xycoords=("axes fraction", "data"), textcoords="offset points",
            fontsize=11, color=_RULE,
        )  # fmt: skip
    else:
        axes.axvline(board.light_s, **style)
        axes.annotate(
            text, (board.light_s, 1), (4, -8), xycoords=("data", "axes fraction"), textcoords="offset points",
            rotation=90, va="top", fontsize=10, color=_RULE, bbox=_PLATE,
        )  # fmt: skip


def _time_axis(axes: Any) -> None:  # noqa: ANN401 as above
    locator = mdates.AutoDateLocator(tz="UTC", minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator, tz="UTC"))
    axes.set_xlabel("time of submission (UTC)")
    axes.margins(x=0.02)


def _score_axis(axis: Any, values: Sequence[float]) -> None:  # noqa: ANN401 as above
    """A logarithmic axis of times in the unit that suits them."""
    low, high = min(values), max(values)
    if high <= low * 1.0001:
        low, high = low / 1.1, high * 1.1
    scale, unit = next((pair for pair in reversed(_UNITS) if math.sqrt(low * high) >= pair[0]), _UNITS[0])
    axes = axis.axes
    margin = (high / low) ** 0.05
    if axis.axis_name == "y":
        axes.set_yscale("log")
        axes.set_ylim(low / margin, high * margin)
    else:
        axes.set_xscale("log")
        axes.set_xlim(low / margin, high * margin)
    _log_ticks(axis, low / margin, high * margin, lambda value: f"{value / scale:,.10g}")
    axis.set_label_text(f"score in {unit} (logarithmic)")


def _log_ticks(axis: Any, low: float, high: float, text: Callable[[float], str]) -> None:  # noqa: ANN401 as above
    """Ticks at 1, 2 and 5 of each decade; on less than one decade at round numbers."""
    decades = math.log10(high / low)
    if decades < 0.9:
        axis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 5 else (1.0, 2.0, 5.0), numticks=40))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def _end_labels(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:  # noqa: ANN401 as above
    """Names at the right end of lines, moved apart where they would overlap."""
    low, high = (math.log(limit) for limit in axes.get_ylim())
    height = axes.get_position().height * HEIGHT_PX
    gap = 19 / height
    ordered = sorted(
        (max(0.0, min(1.0, (math.log(score) - low) / (high - low))), score, text, colour)
        for score, text, colour in labels
    )
    places: list[float] = []
    for share, *_ in ordered:
        places.append(max(share, places[-1] + gap) if places else share)
    over = (places[-1] - 1.0) if places else 0.0
    if over > 0:
        places[-1] -= over
        for index in range(len(places) - 2, -1, -1):
            places[index] = min(places[index], places[index + 1] - gap)
    for place, (share, _, text, colour) in zip(places, ordered, strict=True):
        axes.annotate(
            text, (1.005, share), (1.045, place), xycoords="axes fraction", textcoords="axes fraction", va="center",
            fontsize=11, color=_DARK, annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": colour, "linewidth": 2, "relpos": (0, 0.5), "shrinkA": 2, "shrinkB": 0,
            },
        )  # fmt: skip
