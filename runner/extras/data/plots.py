"""Plots of a board's submissions, as matplotlib figures of 1200 by 675 pixels.

Every function takes rows of one problem on one runner, and rows of that problem that never ranked. Axes of times are
logarithmic and name their unit. Colours are those of Okabe and Ito, which colour-blind readers tell apart; series also
differ in their markers. Text of users is shown as text: no formula is read from it, and control characters are escapes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import matplotlib as mpl
import pandas as pd
from matplotlib import dates as mdates
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

from runner.base.errors import NotFoundError
from runner.extras.data.shipped.analyze_submissions import format_score, printable, top_contestants, valid

_SIZE_INCHES: Final = (12.0, 6.75)
_DPI: Final = 100
#: Okabe and Ito's palette without yellow, which is too faint on white, in the order of use.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_LINES: Final = ("-", "--", "-.", ":")
_GREY: Final = "#6b6b6b"
_FAINT: Final = "#d0d0d0"
_DARK: Final = "#222222"
#: How much the products of score and `sol` may differ: `sol` has four digits.
_SAME_LIGHT: Final = 1e-3
#: Characters of a user's name.
_NAME_LENGTH: Final = 17
#: Families with characters that DejaVu lacks; those that are installed are used.
_FALLBACKS: Final = ("Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Emoji", "WenQuanYi Zen Hei")
#: What makes equal figures equal bytes, with one release of matplotlib.
_METADATA: Final[Mapping[str, dict[str, str | None]]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "kernel-runner"},
}


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
    with _drawing(board, "best score per user over time") as figure:
        axes = figure.add_subplot()
        _draw_records(axes, scored, end, color=_DARK, linewidth=5, alpha=0.18, label="the board's record")
        for place, line in enumerate(ranking.itertuples()):
            _draw_records(
                axes,
                scored[scored["user_id"] == line.user_id],
                end,
                **_style(place),
                label=f"{line.rank}  {_short(line.user_name)}  {format_score(line.score, 'auto')}",
            )
        others = scored[~scored["user_id"].isin(ranking["user_id"])]
        for number, (_, rows) in enumerate(others.groupby("user_id", sort=True)):
            label = "_" if number else "other users"
            _draw_records(axes, rows, end, color=_FAINT, linewidth=0.8, zorder=1, label=label)
        _time_axis(axes)
        firsts, bests = scored.drop_duplicates("user_id")["score"], scored.groupby("user_id")["score"].min()
        _score_axis(axes, [*bests, *firsts], board.light_s)
        figure.legend(loc="outside right upper")
        _facts(axes, f"{_many(len(scored), 'score')} of {_many(scored['user_id'].nunique(), 'user')}")
    return figure


def progression(board: Board, users: Sequence[str]) -> Figure:
    """The scores of some users over time: each score, each record, and below the attempts that did not rank.

    `users`: user ids.

    Raises:
        NotFoundError: one of them has no row on the board.
    """
    end = board.rows["submission_time"].max()
    with _drawing(board, "scores and records over time") as figure:
        share = 0.035 * len(users) + 0.02
        axes, strip = figure.subplots(2, sharex=True, height_ratios=[1 - share, share])
        names, scores, missed = [], [], 0
        for place, user in enumerate(users):
            mine = board.rows[board.rows["user_id"].astype(str) == user]
            if mine.empty:
                raise NotFoundError(f"user {printable(user)} has no submission on {printable(board.problem)}")
            mine = mine.sort_values(["submission_time", "submission_id"], kind="stable")
            names.append(_short(mine["user_name"].iloc[-1]))
            style = _style(place)
            scored, failed = mine[valid(mine)], mine[~valid(mine)]
            missed += len(failed)
            strip.plot(failed["submission_time"], [place] * len(failed), "x", color=style["color"], markersize=6)
            if scored.empty:
                continue
            look = {"color": style["color"], "alpha": 0.35, "markersize": 4}
            axes.plot(scored["submission_time"], scored["score"], style["marker"], **look)
            best = format_score(scored["score"].min(), "auto")
            _draw_records(axes, scored, end, **style, label=f"{names[-1]}  {best}")
            scores += [*scored["score"]]
        strip.set_yticks(range(len(users)), names)
        strip.set_ylim(len(users) - 0.4, -0.6)
        strip.set_title(
            "attempts that did not rank: failed, or never meant to", loc="left", fontsize=11, color=_GREY, pad=4
        )
        axes.plot([], [], "o", color=_DARK, alpha=0.35, markersize=4, label="a score that is no record")
        _time_axis(strip)
        _score_axis(axes, scores, board.light_s)
        figure.legend(loc="outside right upper")
        _facts(axes, f"{_many(len(scores), 'score')}, {_many(missed, 'attempt')} without")
    return figure


def draw(kind: str, board: Board, *, users: Sequence[str] = (), count: int | None = None) -> Figure:
    """The plot of a kind: race or progression.

    `users`: for progression, user ids; none: the `count` best, five by default. Of a race `count` is eight by default.

    Raises:
        NotFoundError: a user has no row on the board.
    """
    if kind == "race":
        return race(board, count=count or 8)
    best = top_contestants(board.scored, n=count or 5)["user_id"]
    return progression(board, list(users) or [str(user) for user in best])


def picture(figure: Figure, form: str) -> bytes:
    """The figure as `png`, or as `svg` with its text as text. Equal figures give equal bytes."""
    target = BytesIO()
    with _settings(), warnings.catch_warnings():
        # A character that no installed font has is shown as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(target, format=form, metadata=_METADATA[form])
    return target.getvalue()


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
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _GREY,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e6e6e6",
        "legend.frameon": False,
        "legend.fontsize": 10,
        "xtick.color": _GREY,
        "xtick.labelcolor": _DARK,
        "ytick.color": _GREY,
        "ytick.labelcolor": _DARK,
        "savefig.dpi": _DPI,
        "svg.fonttype": "none",
        "svg.hashsalt": "kernel-runner",
        "timezone": "UTC",
    }
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        yield


@contextmanager
def _drawing(board: Board, what: str) -> Iterator[Figure]:
    """A figure with its title."""
    with _settings():
        figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        title = f"{_short(board.problem, 40)} on {_short(board.runner, 30)}: {what}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=16, weight="bold", color=_DARK)
        yield figure


def _facts(axes: Any, text: str) -> None:  # noqa: ANN401 matplotlib has no types here
    axes.set_title(f"{text}; lower is better", loc="left", fontsize=11, color=_GREY)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _short(name: object, length: int = _NAME_LENGTH) -> str:
    text = printable(name)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _style(place: int) -> dict[str, Any]:
    """The look of the nth series; no two of the first 28 are equal."""
    turn = place // len(COLOURS)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": _MARKERS[(place + turn) % len(_MARKERS)],
        "linestyle": _LINES[turn % len(_LINES)],
        "linewidth": 1.7,
        "markersize": 5,
        "zorder": 4,
    }


def _draw_records(axes: Any, scored: pd.DataFrame, end: pd.Timestamp, **look: Any) -> None:  # noqa: ANN401 as above
    """The best score so far until `end`, as steps with a marker at each record."""
    before = scored["score"].cummin().shift(fill_value=math.inf)
    records = scored[scored["score"] < before]
    times = [*records["submission_time"], end]
    scores = [*records["score"], records["score"].iloc[-1]]
    axes.plot(times, scores, drawstyle="steps-post", markevery=list(range(len(records))), **look)


def _time_axis(axes: Any) -> None:  # noqa: ANN401 as above
    locator = mdates.AutoDateLocator(tz="UTC", minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator, tz="UTC"))
    axes.set_xlabel("time of submission (UTC)")
    axes.margins(x=0.02)


def _score_axis(axes: Any, scores: Sequence[float], light_s: float | None) -> None:  # noqa: ANN401 as above
    """A logarithmic axis of times, with the speed of light as a dashed line. Nothing is drawn after it."""
    if light_s is not None:
        label = f"speed of light {format_score(light_s, 'auto')}"
        axes.axhline(light_s, color=_GREY, linewidth=1.4, linestyle=(0, (8, 4)), label=label)
    values = [*scores, *([] if light_s is None else [light_s])]
    low, high = min(values), max(values)
    if high <= low * 1.0001:
        low, high = low / 1.1, high * 1.1
    margin = (high / low) ** 0.05
    axes.set_yscale("log")
    axes.set_ylim(low / margin, high * margin)
    # On less than a decade round numbers; else 1, 2 and 5 of each, but of many.
    decades = math.log10(high / low)
    subs = (1.0,) if decades > 5 else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(MaxNLocator(7) if decades < 0.9 else LogLocator(subs=subs, numticks=40))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.set_ylabel("score (logarithmic)")
