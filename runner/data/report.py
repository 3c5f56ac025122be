"""The report of a board: one HTML file with tables and plots, which loads nothing from elsewhere and runs no script."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from runner import __version__
from runner.data import plots
from runner.data.analysis import choose_runner, records
from runner.data.shipped.analyze_submissions import (
    format_score,
    leaderboard_summary,
    printable,
    top_contestants,
    valid,
)
from runner.errors import DataError, NotFoundError

_RANKED: Final = 20
_SHOWN_USERS: Final = 5
_STYLE: Final = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; }
body { max-width: 1200px; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.7rem; margin-bottom: 0; }
h2 { font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
p.facts, figcaption, footer { color: #555; }
figure { margin: 1.5rem 0; }
figure img { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.9rem 0.25rem 0; text-align: left; border-bottom: 1px solid #e3e3e3; }
th, td { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; }
"""
#: Nothing may load or run, should a name ever get through.
_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_SUMMARY: Final = (
    *("submissions", "users", "passing", "passing_users", "best", "best_user", "median"),
    *("first_submission", "last_submission"),
)
_RANKING: Final = ("rank", "user_name", "score", "submissions", "submission_id", "submission_time")


def report(rows: pd.DataFrame, problem: str, *, runner: str | None = None, runs: pd.DataFrame | None = None) -> str:
    """The report of a problem as one HTML document.

    Args:
        rows: an export's rows.
        problem: its name.
        runner: only this runner; None: all with a score.
        runs: rows of `runs.parquet`, if there are any, for the noise.

    Raises:
        NotFoundError: the problem has no score, or not on this runner.
    """
    mine = rows[rows["problem_name"] == problem]
    scored = mine[valid(mine)]
    names = sorted(scored["runner"].dropna().unique()) if runner is None else [choose_runner(mine, runner)]
    if not names:
        raise NotFoundError(f"{printable(problem)} has no score")
    facts = (
        f"{len(mine):,} rows of {mine['user_id'].nunique():,} users, {_text(mine['submission_time'].min())} to "
        f"{_text(mine['submission_time'].max())}. A score is a time; lower is better. Scores of different runners do "
        "not compare."
    )
    parts = [f"<h1>{_text(problem)}</h1>", f'<p class="facts">{facts}</p>']
    for name in names:
        parts += _section(plots.board_of(mine, problem, name), runs)
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(problem)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n"
        f"<footer><p>Made by kernel-runner {_text(__version__)}.</p></footer>\n</body>\n</html>\n"
    )


def write(path: Path, content: bytes) -> None:
    """Write a picture or a report.

    Raises:
        DataError: its folder does not exist, or it cannot be written.
    """
    try:
        path.write_bytes(content)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error


def _section(board: plots.Board, runs: pd.DataFrame | None) -> Iterator[str]:
    """Tables and plots of one runner."""
    yield f"<h2>{_text(board.runner)}</h2>"
    here = board.rows[board.rows["runner"] == board.runner]
    yield _table(records(leaderboard_summary(here)), _SUMMARY)
    ranking = top_contestants(board.scored, n=_RANKED)
    yield f"<h3>The best {len(ranking)}</h3>"
    yield _table(records(ranking), _RANKING)
    users = [str(user) for user in ranking["user_id"].head(_SHOWN_USERS)]
    repeats = plots.repeats_of(board, runs)
    drawn: Sequence[tuple[Callable[[], Figure], str]] = (
        (lambda: plots.race(board), "Best score of each of the eight best users over time, and the board's record."),
        (lambda: plots.progression(board, users), "Scores, records and attempts without a score of the best users."),
        (lambda: plots.distribution(board), "How many scores lie where."),
        (lambda: plots.speed_of_light(board), "How far the best users are from the time of a perfect kernel."),
        (lambda: plots.noise(board, repeats), "How much the times of equal codes differ."),
    )
    for draw, caption in drawn:
        try:
            picture = plots.to_svg(draw())
        except NotFoundError as error:
            yield f"<p>{_text(caption)} Not shown: {_text(error)}.</p>"
            continue
        data = base64.b64encode(picture).decode("ascii")
        yield (
            f'<figure><img alt="{_text(caption)}" width="{plots.WIDTH_PX}" height="{plots.HEIGHT_PX}" '
            f'src="data:image/svg+xml;base64,{data}"><figcaption>{_text(caption)}</figcaption></figure>'
        )


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    head = "".join(f"<th{_class(rows, column)}>{_text(column.replace('_', ' '))}</th>" for column in columns)
    lines = [
        "".join(f"<td{_class(rows, column)}>{_cell(column, row[column])}</td>" for column in columns) for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def _class(rows: Sequence[dict[str, Any]], column: str) -> str:
    return ' class="number"' if rows and isinstance(rows[0][column], int | float) else ""


def _cell(column: str, value: object) -> str:
    if value is None:
        return "-"
    if column in ("score", "best", "median") and isinstance(value, float):
        return _text(format_score(value, "auto"))
    if isinstance(value, int) and not column.endswith("_id"):
        return f"{value:,}"
    return _text(value)


def _text(value: object) -> str:
    """A value as text of HTML, also inside an attribute."""
    if isinstance(value, datetime):
        value = f"{value:%Y-%m-%d %H:%M} UTC"
    return html.escape(printable(value), quote=True)
