"""`leaderboard`: look at leaderboards, rankings and tasks; pause and delete them."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated

import typer

from runner.base.errors import NotFoundError
from runner.base.gpu_types import Registry
from runner.cli import json_output
from runner.cli.app import app, example, note, out, out_json, session
from runner.cli.task_faults import TaskFaults, task_faults
from runner.extras.boards.commands import publish, render
from runner.extras.boards.commands.publish import JsonOption
from runner.extras.boards.directive import with_directive
from runner.extras.boards.store import BoardLine, BoardStore, BoardView

leaderboard = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Leaderboards: publish tasks and look at rankings."
)
app.add_typer(leaderboard, name="leaderboard")
leaderboard.add_typer(publish.commands)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name or number.")]
BoardArgument = Annotated[str, typer.Argument(metavar="BOARD", help="Name or number.")]


@leaderboard.command("list", epilog=example("kernel-runner leaderboard list"))
def list_boards(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the leaderboards.

    Open ones come first; `ranks` says which times rank. Open ones whose task does not load, so that every submission is
    `invalid`, are named with the reason.
    """
    with session(context).open(BoardStore) as store:
        boards, faults = store.boards(), task_faults(store) or TaskFaults()
    if as_json:
        out_json([json_output.record(line, task_fault=faults.broken.get(line.name)) for line in boards])
        return
    out(render.boards_table(boards))
    _note_faults(faults)


@leaderboard.command(epilog=example("kernel-runner leaderboard show vectoradd"))
def show(
    context: typer.Context,
    *,
    name: NameArgument,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="T", help="Only this GPU type; aliases work.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the ranking of a leaderboard, one table per GPU type.

    A user's best score counts, if the secret run of the same submission passed. The first line says which times rank;
    each score shows what it is worth (docs/frontends.md#what-a-time-is-worth).
    `validated` is what the task's own script said (docs/frontends.md#validations). The order of the last final comes
    first (docs/operations.md#finals).
    """
    with session(context).open(BoardStore) as store:
        name = store.board_name(name)
        board, faults = store.line(name), task_faults(store) or TaskFaults()
        chosen = None if gpu is None else _of_board(context, board, gpu)
        lines = store.ranking(name, chosen)
        places, pairs = store.final_ranking(name, chosen)
        validated = {(line.submission_id, line.gpu_type): line for line in store.validations(leaderboard=name)}
    if as_json:
        validations = [validated.get((line.submission_id, line.gpu_type)) for line in lines]
        out_json(
            [
                json_output.record(line, validation=None if validation is None else json_output.record(validation))
                for line, validation in zip(lines, validations, strict=True)
            ]
        )
    else:
        for _, final in groupby(places, key=lambda place: place.gpu_type):
            out(render.final_table([*final], pairs))
        gpus = (chosen,) if chosen else board.gpus
        out(render.ranking_page(name, gpus, lines, demand=board.demand, validated=validated))
    if unknown := faults.unknown.get(name):
        _note_faults(TaskFaults(unknown={name: unknown}))


@leaderboard.command(epilog=example("kernel-runner leaderboard task vectoradd reference.py"))
def task(
    context: typer.Context,
    *,
    name: NameArgument,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="A file of the task to print.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a leaderboard's task, or print one of its files.

    The secret seed is never shown.
    """
    with session(context).open(BoardStore) as store:
        name = store.board_name(name)
        board = store.board(name)
    if file is not None:
        typer.echo(_file(board, file).encode(), nl=False)
    elif as_json:
        out_json(json_output.record(board))
    else:
        out(render.board_page(board))


@leaderboard.command(epilog=example("kernel-runner leaderboard template vectoradd Python > mine.py"))
def template(
    context: typer.Context,
    *,
    name: NameArgument,
    language: Annotated[
        str, typer.Argument(metavar="LANG", help="Python, Triton, CUDA, HIP or CuteDSL, if the task has it.")
    ],
) -> None:
    """Print a leaderboard's template.

    Its first line names the leaderboard, so `submit` needs no --leaderboard.
    """
    with session(context).open(BoardStore) as store:
        name = store.board_name(name)
        board = store.board(name)
    by_name = {key.lower(): key for key in board.templates}
    key = by_name.get(language.lower())
    if key is None:
        offered = ", ".join(sorted(board.templates)) or "none"
        raise NotFoundError(f"leaderboard {name!r} has no template for {language!r}, it has {offered}")
    text = with_directive(board.templates[key], name, lang=str(board.task.get("lang", "py")))
    typer.echo(text.encode(), nl=False)


@leaderboard.command(epilog=example("kernel-runner leaderboard pause vectoradd --reason 'the reference is wrong'"))
def pause(
    context: typer.Context,
    *,
    name: BoardArgument,
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="Those who wait read it.")],
) -> None:
    """Let no host begin jobs of a leaderboard.

    What runs goes on, and submissions are still taken. It holds on all GPU types until `leaderboard resume`.
    """
    with session(context).open(BoardStore) as store:
        name = store.board_name(name)
        changed = store.pause_board(name, reason=reason)
    note(f"leaderboard {name} {'is paused' if changed else 'was paused already'}")


@leaderboard.command(epilog=example("kernel-runner leaderboard resume vectoradd"))
def resume(context: typer.Context, *, name: BoardArgument) -> None:
    """Let hosts begin jobs of a paused leaderboard again.

    Their daemons look at the queue at once.
    """
    with session(context).open(BoardStore) as store:
        name = store.board_name(name)
        changed = store.resume_board(name)
    note(f"leaderboard {name} {'is served again' if changed else 'was not paused'}")


@leaderboard.command(epilog=example("kernel-runner leaderboard delete vectoradd --force"))
def delete(
    context: typer.Context,
    *,
    name: NameArgument,
    force: Annotated[bool, typer.Option("--force", help="Delete submissions and results too.")] = False,
) -> None:
    """Delete a leaderboard.

    If it has submissions, --force is required.
    """
    with session(context).open(BoardStore) as store:
        name = store.board_name(name)
        store.delete_board(name, force=force)
    note(f"leaderboard {name} is deleted")


def _of_board(context: typer.Context, board: BoardLine, name: str) -> str:
    """The board's GPU type that a name or alias means.

    Raises:
        NotFoundError: the board does not have it.
    """
    gpu_type = name
    if name not in board.gpus:
        gpu_type = Registry.load(session(context).config.gpus_dir).get(name).name
    if gpu_type not in board.gpus:
        raise NotFoundError(f"leaderboard {board.name!r} is not ranked on {gpu_type}, expected {', '.join(board.gpus)}")
    return gpu_type


def _file(board: BoardView, name: str) -> str:
    files = board.task.get("files", {})
    if name not in files:
        raise NotFoundError(
            f"the task of leaderboard {board.name!r} has no file {name!r}, it has {', '.join(sorted(files))}"
        )
    return str(files[name])


def _note_faults(faults: TaskFaults) -> None:
    for text in faults.texts():
        note(text)
