"""The report of a board: one HTML file with tables and plots, which loads nothing from elsewhere and runs no script."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd

from runner import __version__
from runner.base.errors import DataError, NotFoundError
from runner.extras.data import plots
from runner.extras.data.analysis import choose_runner
from runner.extras.data.shipped.analyze_submissions import (
    format_score,
    leaderboard_summary,
    printable,
    top_contestants,
    valid,
)

_RANKED: Final = 20
_PLOTS: Final = {
    "race": "Best score of each of the eight best users over time, and the board's record.",
    "progression": "Scores, records and attempts without a score of the best users.",
    "distribution": "How many scores lie where.",
}
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
"""
#: Nothing may load or run, should a name ever get through.
_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_SUMMARY: Final = (
    *("submissions", "users", "passing", "passing_users", "best", "best_user", "median"),
    *("first_submission", "last_submission"),
)
_SCORES: Final = ("score", "best", "median")
_RANKING: Final = ("rank", "user_name", "score", "submissions", "submission_id", "submission_time")


def report(rows: pd.DataFrame, problem: str, *, runner: str | None = None) -> str:
    """The report of a problem as one HTML document, from an export's rows; `runner`: None: all with a score.

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
        parts += _section(plots.board_of(mine, problem, name))
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


def _section(board: plots.Board) -> Iterator[str]:
    """Tables and plots of one runner."""
    yield f"<h2>{_text(board.runner)}</h2>"
    here = board.rows[board.rows["runner"] == board.runner]
    yield _table(leaderboard_summary(here), _SUMMARY)
    ranking = top_contestants(board.scored, n=_RANKED)
    yield f"<h3>The best {len(ranking)}</h3>"
    yield _table(ranking, _RANKING)
    for kind, caption in _PLOTS.items():
        picture = base64.b64encode(plots.to_svg(plots.draw(kind, board))).decode("ascii")
        yield (
            f'<figure><img alt="{_text(caption)}" width="{plots.WIDTH_PX}" height="{plots.HEIGHT_PX}" '
            f'src="data:image/svg+xml;base64,{picture}"><figcaption>{_text(caption)}</figcaption></figure>'
        )


def _table(frame: pd.DataFrame, columns: Sequence[str]) -> str:
    """Text is escaped, control characters too."""
    shown = frame[list(columns)].copy()
    for column in columns:
        cell: Callable[[Any], str] = partial(format_score, unit="auto") if column in _SCORES else _cell
        shown[column] = [cell(value) for value in frame[column]]
    return str(shown.rename(columns=lambda name: name.replace("_", " ")).to_html(index=False, border=0, na_rep="-"))


def _cell(value: object) -> str:
    return f"{value:%Y-%m-%d %H:%M} UTC" if isinstance(value, datetime) else printable(value)


def _text(value: object) -> str:
    """A value as text of HTML, also inside an attribute."""
    return html.escape(_cell(value), quote=True)
