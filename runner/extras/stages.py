"""Bars of progress on stderr, on terminals only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from runner.cli.app import console

#: Gets a stage, how much of it is done, and how much there is (0: not known).
Show = Callable[[str, int, int], None]


@contextmanager
def stages() -> Iterator[Show]:
    """A bar per stage."""
    target = console(stderr=True)
    if not target.is_terminal:
        yield lambda _stage, _done, _total: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=target, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=None)
            bars.update(tasks[stage], completed=done, total=total or None)

        yield show
