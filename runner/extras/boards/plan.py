"""What an import or an update would do to each leaderboard: made before anything is stored, shown by --dry-run.

Pure: compares task folders with boards that the store has returned.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from runner.base.errors import TaskError
from runner.base.model import Demand
from runner.base.safe import one_line
from runner.base.units import moment
from runner.extras.boards.competition import Problem
from runner.extras.boards.store import EVALUATOR, RUNNER_YML, BoardView, check_board, check_new_name, incomparable
from runner.store.clean import clean_json
from runner.task_format import extra_to_stored, to_stored
from runner.task_format.model import TaskFolder

#: Longest text of a value that a line shows.
_MAX_SHOWN = 60


class Action(StrEnum):
    """What becomes of a leaderboard."""

    CREATE = "create"
    UPDATE = "update"
    UNCHANGED = "unchanged"
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing about a leaderboard that would be another."""

    #: A key of task.yml; `runner.yml: KEY` for ours; with the name behind a dot where it holds several texts.
    key: str
    text: str
    #: There are submissions, and their scores would not compare with new ones.
    needs_force: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `leaderboard import` and `update` print it with --json."""
        return {"key": self.key, "change": self.text, "needs_force": self.needs_force}


@dataclass(frozen=True, kw_only=True)
class BoardPlan:
    """What becomes of one leaderboard."""

    name: str
    action: Action
    folder: TaskFolder
    deadline: datetime
    #: Those it is or will be offered on.
    gpus: tuple[str, ...]
    submissions: int = 0
    changes: tuple[Change, ...] = ()
    #: What the file says and the import does not do, or why it does nothing.
    remark: str | None = None

    @property
    def needs_force(self) -> bool:
        """Whether it is refused without --force."""
        return any(change.needs_force for change in self.changes)

    @property
    def changes_evaluator(self) -> bool:
        """Whether it is refused with --force, too."""
        return any(change.needs_force and change.key == EVALUATOR for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """As `leaderboard import` and `update` print it with --json."""
        return {
            "name": self.name,
            "action": self.action.value,
            "gpus": list(self.gpus),
            "deadline": self.deadline.isoformat(),
            "submissions": self.submissions,
            "needs_force": self.needs_force,
            "changes": [change.to_json() for change in self.changes],
            "remark": self.remark,
        }


def require_word(board: str) -> None:
    """Refuse a new leaderboard's name that no directive can name.

    Raises:
        TaskError: it has white space.
    """
    if board.split() != [board]:
        raise TaskError(
            f"leaderboard name is {board!r}, expected no white space: a file names it in `#!POPCORN leaderboard NAME`"
        )


def plan_board(
    problem: Problem, *, present: BoardView | None, gpus: Sequence[str], lifetime_end: datetime
) -> BoardPlan:
    """What to do about one problem.

    A board that exists (`present`) keeps its GPU types, as in KernelBot, and its deadline where the file names none; a
    new one ends at `lifetime_end` then. `gpus`: canonical names of the GPU types that the file or the task names.

    Raises:
        TaskError, BoardError: the leaderboard could not be stored.
    """
    deadline = problem.deadline or (lifetime_end if present is None else present.deadline)
    skipped = BoardPlan(
        name=problem.name,
        action=Action.SKIP,
        folder=problem.folder,
        deadline=deadline,
        gpus=(),
        submissions=0 if present is None else present.submissions,
        remark="no GPU type is named for it",
    )
    if not gpus:
        return skipped
    # Now, as the leaderboards before it are not stored yet.
    check_board(problem.name, deadline, gpus)
    if present is None:
        require_word(problem.name)
        check_new_name(problem.name)
        return replace(skipped, action=Action.CREATE, gpus=tuple(gpus), remark=None)
    changes = tuple(_changes(problem.folder, deadline, present))
    action = Action.UPDATE if changes else Action.UNCHANGED
    stay, named = ", ".join(present.gpus), ", ".join(gpus)
    remark = f"GPU types stay {stay}, though {named} are named: `leaderboard update --gpu` changes them"
    same = set(gpus) == set(present.gpus)
    return replace(skipped, action=action, gpus=present.gpus, changes=changes, remark=None if same else remark)


def plan_update(
    name: str,
    folder: TaskFolder,
    *,
    present: BoardView,
    deadline: datetime,
    gpus: Sequence[str],
    demand: Demand,
    open_code: bool,
) -> BoardPlan:
    """What an update does to a leaderboard, whose GPU types, demand and `open_code` become those given."""
    changes = tuple(_changes(folder, deadline, present))
    if set(gpus) != set(present.gpus):
        changes += (Change(key="gpus", text=f"{', '.join(present.gpus)} → {', '.join(gpus)}"),)
    for key in ("timing", "tolerance"):
        before, after = getattr(present.demand, key), getattr(demand, key)
        if before != after:
            changes += (Change(key=key, text=f"{before} → {after}"),)
    if open_code != present.open_code:
        changes += (Change(key="code after the deadline", text="closed → open" if open_code else "open → closed"),)
    return BoardPlan(
        name=name,
        action=Action.UPDATE if changes else Action.UNCHANGED,
        folder=folder,
        deadline=deadline,
        gpus=tuple(gpus),
        submissions=present.submissions,
        changes=changes,
    )


def _changes(folder: TaskFolder, deadline: datetime, present: BoardView) -> Iterator[Change]:
    task: Any = clean_json(to_stored(folder.task))
    new_extra: Any = clean_json(extra_to_stored(folder.task.extra))
    extra = present.extra or {}
    frozen = (
        incomparable(present.task, extra, new_task=task, new_extra=new_extra, gpus=present.gpus)
        if present.submissions
        else ()
    )
    for key in dict.fromkeys((*task, *present.task)):
        for name, text in _difference(present.task.get(key), task.get(key)):
            yield Change(key=f"{key}.{name}" if name else key, text=text, needs_force=key in frozen)
    cases, new_cases = _by_list(extra), _by_list(new_extra)
    before, after = {**extra, **cases}, {**new_extra, **new_cases}
    for key in dict.fromkeys((*after, *before)):
        if key != "cases":
            for _, text in _difference(before.get(key), after.get(key)):
                yield Change(key=f"{RUNNER_YML}{key}", text=text, needs_force=f"{RUNNER_YML}{key}" in frozen)
    for name, text in _difference(dict(present.templates), clean_json(folder.templates)):
        yield Change(key=f"templates.{name}", text=text)
    for _, text in _difference(present.description, clean_json(folder.description)):
        yield Change(key="description", text=text)
    if deadline != present.deadline:
        yield Change(key="deadline", text=f"{moment(present.deadline)} → {moment(deadline)} UTC")


def _by_list(extra: Mapping[str, Any]) -> Mapping[str, object]:
    """The lists of cases that runner.yml has for GPU types, each by a name of its own."""
    return {
        f"cases.{gpu}.{kind}": cases for gpu, lists in extra.get("cases", {}).items() for kind, cases in lists.items()
    }


def _difference(before: object, after: object) -> Iterator[tuple[str, str]]:
    """What differs between two values of a key: the name of the part, empty for the whole, and the change in words."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*after, *before)):
            if before.get(name) != after.get(name):
                yield str(name), _change(before.get(name), after.get(name))
    else:
        yield "", _change(before, after)


def _change(before: object, after: object) -> str:
    if before is None:
        return f"new: {_shown(after)}"
    if after is None:
        return f"gone: {_shown(before)}"
    if isinstance(before, list) and isinstance(after, list):
        return _counted([str(item) for item in before], [str(item) for item in after], "entries")
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        return _counted(before.splitlines(), after.splitlines(), "lines")
    return f"{_shown(before)} → {_shown(after)}"


def _counted(before: Sequence[str], after: Sequence[str], unit: str) -> str:
    """How many items of a sequence come and go."""
    added = removed = 0
    for tag, start, end, after_start, after_end in difflib.SequenceMatcher(
        a=before, b=after, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            removed += end - start
            added += after_end - after_start
    # Equal line by line: they differ in how lines end.
    return f"+{added} -{removed} {unit}" if added or removed else "line endings"


def _shown(value: object) -> str:
    text = str(value)
    if "\n" in text:
        return f"{len(text.splitlines())} lines"
    text = one_line(text)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
