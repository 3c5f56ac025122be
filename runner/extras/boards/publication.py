"""A task folder becomes a leaderboard: what is checked and stored, whoever publishes it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from runner.base.errors import TaskError
from runner.base.gpu_types import Registry
from runner.extras.boards.plan import Action, BoardPlan, require_word
from runner.extras.boards.store import BoardStore, Parts
from runner.task_format import extra_to_stored, load, to_stored
from runner.task_format.case_memory import require_fit, unused_cases
from runner.task_format.model import TaskFolder

#: A board without a deadline gets this long (KernelBot's rule).
DEFAULT_LIFETIME: Final = timedelta(days=365)


def load_archive(name: str, data: bytes) -> TaskFolder:
    """The task of a .zip; no error says where it lay meanwhile.

    Raises:
        TaskError: one line per problem.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-runner-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            return load(path)
        except TaskError as error:
            raise TaskError(str(error).replace(f"{folder}/", "")) from error


def create(
    store: BoardStore,
    board: str,
    folder: TaskFolder,
    *,
    deadline: datetime,
    gpus: Sequence[str],
    **options: Any,  # noqa: ANN401 - of `create_board`
) -> int:
    """Publish a task as a new leaderboard; returns its id.

    Raises:
        TaskError: the name has white space.
        BoardError: as `create_board`.
    """
    require_word(board)
    return store.create_board(**settings(board, folder, deadline=deadline, gpus=gpus), **options)


def carry_out(store: BoardStore, plan: BoardPlan, *, force: bool, visibility: str = "public") -> None:
    """Create or update a leaderboard as planned, if there is anything to do. `visibility`: of one that is created.

    Raises:
        TaskError, BoardError: as `create` and `update_board`.
    """
    match plan.action:
        case Action.CREATE:
            create(store, plan.name, plan.folder, deadline=plan.deadline, gpus=plan.gpus, visibility=visibility)
        case Action.UPDATE:
            parts = settings(plan.name, plan.folder, deadline=plan.deadline, gpus=plan.gpus)
            store.update_board(**parts, force=force)


def settings(board: str, folder: TaskFolder, *, deadline: datetime, gpus: Sequence[str]) -> Parts:
    """A leaderboard as the store takes it."""
    return {
        "name": board,
        "deadline": deadline,
        "task": to_stored(folder.task),
        "description": folder.description,
        "gpus": gpus,
        "templates": folder.templates,
        "extra": extra_to_stored(folder.task.extra),
    }


def offered(
    store: BoardStore, gpus_dir: Path | None, folder: TaskFolder, names: Sequence[str], board: str
) -> tuple[str, ...]:
    """The canonical names of GPU types, in order, without repetition.

    Raises:
        TaskError: none are given, or a case does not fit one or has its alias, as far as the registry here knows it.
        NotFoundError: neither the registry here nor any daemon knows a name.
    """
    if not names:
        raise TaskError(f"leaderboard {board!r}: no GPU type; give --gpu, or `gpus` in task.yml")
    registry = Registry.load(gpus_dir)
    # A host's own overlay may define types that this machine has never heard of.
    announced = {line.name for line in store.gpu_types()}
    gpus = tuple(dict.fromkeys(name if name in announced else registry.get(name).name for name in names))
    for entry in registry.all():
        if entry.name in gpus:
            unused = unused_cases(folder.task, entry)
            if unused is not None:
                raise TaskError(f"leaderboard {board!r}: {unused}")
            require_fit(folder.task, folder.task.cases_for(entry.name).every, entry, owner=f"leaderboard {board!r}")
    return gpus
