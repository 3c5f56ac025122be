"""Commands of the group `leaderboard` that have ranked submissions evaluated again, without a change of the ranking.

`final` compares the best of a ranking side by side; `validate` has a task's own script look at them.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from runner.base.errors import NotFoundError
from runner.base.safe import one_line
from runner.cli import json_output
from runner.cli.app import ExitCode, example, note, out, out_json, session
from runner.cli.arguments import possible_id
from runner.cli.progress import ProgressLine
from runner.cli.wait import wait_until
from runner.extras.boards.commands import render
from runner.extras.boards.commands.boards import NameArgument, leaderboard
from runner.extras.boards.commands.publish import JsonOption
from runner.extras.boards.store import BoardStore
from runner.extras.queries import SHARED
from runner.store import Store
from runner.store.connection import Row


@leaderboard.command(
    epilog=example(
        "kernel-runner leaderboard final vectoradd --gpu H100 --wait",
        "kernel-runner leaderboard final vectoradd --status",
    )
)
def final(
    context: typer.Context,
    *,
    name: NameArgument,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="T", help="GPU type; needed where the leaderboard has several.")
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", help="So many of the ranking take part.")] = 10,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", help="At most; fewer, if the order is clear before.")
    ] = 25,
    open_board: Annotated[bool, typer.Option("--open", help="Also while the leaderboard is open.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show how far the newest final is; order none.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the final that runs; order none.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the final to its end, and print its ranking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Hold a final: evaluate the best submissions of a ranking again, in rounds, and compare them side by side.

    In each round every finalist runs once on every host of the GPU type, in a new order, with one secret seed for all.
    Those who cannot be told apart share a rank (docs/operations.md#finals). Ctrl-C ends the waiting, not the final.
    """
    if status and cancel:
        raise typer.BadParameter("give --status or --cancel, not both", param_hint="--cancel")
    with session(context).open(BoardStore) as store:
        name = store.board_name(name)
        if cancel:
            typer.echo(store.all(SHARED["cancel_final"], leaderboard=name, gpu_type=gpu)[0]["jobs"])
            return
        if not status:
            values = {"gpu_type": gpu, "top": top, "rounds": rounds, "open": open_board}
            order = store.all(SHARED["final"], leaderboard=name, **values)[0]
            note(
                "final {final_id} of {name}: {finalists} finalists on {hosts} hosts".format(
                    **order, name=one_line(name)
                )
            )
        progress = _progress(store, name, gpu)
        if wait:
            progress = _follow(store, name, progress["gpu_type"])
        completed = progress["status"] == "completed"
        lines, pairs = store.final_ranking(name, progress["gpu_type"]) if completed else ([], [])
    if as_json:
        places = [json_output.record(line) for line in lines]
        out_json({**progress, "places": places, "pairs": [json_output.record(pair) for pair in pairs]})
    else:
        out(Text(_progress_text(progress)))
        if lines:
            out(render.final_table(lines, pairs))


def _progress(store: Store, name: str, gpu_type: str | None) -> Row:
    newest = store.all(SHARED["final_progress"], leaderboard=name, gpu_type=gpu_type)
    if not newest:
        raise NotFoundError(f"leaderboard {name!r} had no final{'' if gpu_type is None else f' on {gpu_type}'}")
    return newest[0]


def _follow(store: Store, name: str, gpu_type: str) -> Row:
    try:
        with ProgressLine() as line:
            progress = wait_until(
                lambda: _progress(store, name, gpu_type),
                lambda progress: progress["status"] != "running",
                show=lambda progress: line.show(_progress_text(progress)),
                explain=line.show,
            )
    except KeyboardInterrupt:
        note(f"the final goes on; stop it with `kernel-runner leaderboard final {one_line(name)} --cancel`")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    return progress or _progress(store, name, gpu_type)


def _progress_text(progress: Row) -> str:
    most = progress["rounds"] * progress["hosts"] * (progress["finalists"] + 1)
    return one_line(
        "final {final_id} on {gpu_type} is {status}: round {round} of at most {rounds}, {evaluations} of at most "
        "{most} evaluations".format(**progress, most=most)
    )


@leaderboard.command(
    epilog=example(
        "kernel-runner leaderboard validate cholesky --gpu B200 --wait",
        "kernel-runner leaderboard validate cholesky --gpu B200 --all-users --only-missing",
    )
)
def validate(
    context: typer.Context,
    *,
    name: NameArgument,
    gpu: Annotated[str, typer.Option("--gpu", metavar="T", help="GPU type; aliases work.")],
    all_users: Annotated[
        bool, typer.Option("--all-users", help="The best submission of every user, not of the ten best users alone.")
    ] = False,
    only_missing: Annotated[
        bool,
        typer.Option("--only-missing", help="Leave out those that the script has looked at in its present version."),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the results, and print them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Have ranked submissions validated by the task's own script (`validation` in task.yml).

    Queues the best submission of each of the ten best users on a GPU type, behind all other jobs and two at a time.
    No ranking changes (docs/frontends.md#validations). Ctrl-C ends the waiting, not the validations.
    """
    with session(context).open(BoardStore) as store:
        name = store.board_name(name)
        which = {"gpu_type": gpu, "all_users": all_users, "only_missing": only_missing}
        sweep = store.all(SHARED["validate"], leaderboard=name, **which)[0]
        sweep_id = sweep["sweep_id"]
        title = one_line(f"validation sweep {sweep_id} of {name}, {sweep['contract_version']}")
        note(f"{title}: {sweep['jobs']} jobs")
        if not wait:
            if as_json:
                out_json(sweep)
            return
        try:
            with ProgressLine() as line:
                wait_until(
                    lambda: store.all(SHARED["validation_progress"], sweep_id=sweep_id)[0],
                    lambda progress: progress["status"] != "running",
                    show=lambda progress: line.show(
                        f"{title}: {progress['finished']} of {progress['jobs']} jobs are over"
                    ),
                    explain=line.show,
                )
        except KeyboardInterrupt:
            note(f"{title} goes on; stop it with `kernel-runner leaderboard cancel-validations {sweep_id}`")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        lines = store.validations(sweep_id=sweep_id)
    if as_json:
        out_json({**sweep, "results": [json_output.record(line) for line in lines]})
    else:
        out(render.validations_table(lines))


@leaderboard.command(epilog=example("kernel-runner leaderboard cancel-validations 3"))
def cancel_validations(
    context: typer.Context,
    *,
    sweep_id: Annotated[int, typer.Argument(metavar="SWEEP", callback=possible_id)],
) -> None:
    """Cancel what is left of a validation sweep.

    Prints the number of jobs that leave the queue or are asked to stop; 0 means that all were over. Results stay.
    """
    with session(context).open(BoardStore) as store:
        typer.echo(store.all(SHARED["cancel_validations"], sweep_id=sweep_id)[0]["asked"])
