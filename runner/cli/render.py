"""The queue as the command line prints it, and the parts that all such pages share. Pure: no I/O.

Everything a stranger wrote goes through `runner.base.safe` and is put into `Text`, never into markup. The JSON of the
same records is made in `runner.cli.json_output`, that of a submission in `runner.cli.view`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from runner.base.model import JobState, Verdict
from runner.base.safe import one_line
from runner.base.units import moment, score, shapes
from runner.store.records import POSITION_LIMIT, StatusLine, ValidationLine


def assured(time: str, timing: object) -> str:
    """A time with its timing assurance, e.g. `1.23 ms (measured)`; alone where that is not known."""
    return f"{time} ({one_line(timing)})" if isinstance(timing, str) else time


def verdict_text(verdict: Verdict | None, state: JobState | None = None) -> Text:
    """A verdict, or the state of what has none yet."""
    if verdict is None:
        # Over without a verdict: it was taken out.
        return Text("-" if state is None else "none" if state is JobState.DONE else state.value, style="dim")
    return Text(verdict.value, style="green" if verdict is Verdict.ACCEPTED else "red")


def queue_table(lines: Sequence[StatusLine]) -> RenderableType:
    """Submissions, one per line, in the order given."""
    if not lines:
        return Text("no submissions yet")
    table = make_table(
        "id", "leaderboard", "user", "file", "mode", "gpu", "state", "verdict", "score", "submitted (UTC)"
    )
    for line in lines:
        table.add_row(
            str(line.submission_id),
            Text(one_line(line.leaderboard)),
            Text(one_line(line.user_name or line.user_id)),
            Text(one_line(line.file_name)),
            ", ".join(line.modes),
            Text(one_line(", ".join(line.gpu_types))),
            Text(_state(line)),
            verdict_text(line.verdict),
            assured(score(line.score_s), None if line.score_s is None else line.timing),
            moment(line.submission_time),
        )
    return table


def _state(line: StatusLine) -> str:
    if line.state is JobState.QUEUED and line.position is not None:
        return f"queued, {position(line.position)}{', again' if line.rerunning else ''}"
    return one_line(", ".join((line.state.value, *([] if line.phase is None else [line.phase]))))


def position(position: int) -> str:
    """A place in the queue; the database counts no further than POSITION_LIMIT."""
    return f"position {position}" if position < POSITION_LIMIT else f"position {POSITION_LIMIT} or later"


def validation_text(line: ValidationLine) -> str:
    """What a validation said, of which version of the script, and when."""
    outcome = shapes(line.status, line.passed_shapes, line.total_shapes, line.geomean_sync_wall_speedup)
    return f"{outcome} ({one_line(line.contract_version)}, {moment(line.checked_at)})"


def listing(columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    """Rows of cells that are harmless already, one line each, under plain columns."""
    table = make_table(*columns)
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def make_table(*columns: str, numbers: int = 0) -> Table:
    """A plain table; the `numbers` columns after the first are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if 1 <= index <= numbers else "left")
    return table
