"""`leaderboard validate`: has a task's own script look at ranked submissions, and waits for what it says."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli import json_output, render
from runner.cli.app import ExitCode, example, note, out, out_json, session
from runner.cli.ids import possible_id
from runner.cli.progress import ProgressLine
from runner.cli.safe import one_line
from runner.cli.wait import wait_until
from runner.store.records import SweepProgress

#: A part of the group `leaderboard`.
commands = typer.Typer()


@commands.command(
    epilog=example(
        "kernel-runner leaderboard validate cholesky --gpu B200 --wait",
        "kernel-runner leaderboard validate cholesky --gpu B200 --all-users --only-missing",
    )
)
def validate(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or number.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="T", help="GPU type; aliases work.")],
    all_users: Annotated[
        bool, typer.Option("--all-users", help="The best submission of every user, not of the ten best users alone.")
    ] = False,
    only_missing: Annotated[
        bool,
        typer.Option("--only-missing", help="Leave out those that the script has looked at in its present version."),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the results, and print them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Have ranked submissions validated by the task's own script (`validation` in task.yml).

    Queues the best submission of each of the ten best users on a GPU type, behind all other jobs and two at a time.
    No ranking changes (docs/frontends.md#validations). Ctrl-C ends the waiting, not the validations.
    """
    with session(context).store() as store:
        name = store.board_name(name)
        sweep = store.validate(name, gpu, all_users=all_users, only_missing=only_missing)
        title = one_line(f"validation sweep {sweep.sweep_id} of {name}, {sweep.contract_version}")
        note(f"{title}: {sweep.jobs} jobs")
        if not wait:
            if as_json:
                out_json(json_output.record(sweep))
            return
        try:
            with ProgressLine() as line:

                def show(progress: SweepProgress) -> None:
                    line.show(f"{title}: {progress.finished} of {progress.jobs} jobs are over")

                wait_until(
                    lambda: store.validation_progress(sweep.sweep_id),
                    lambda progress: progress.status != "running",
                    show=show,
                    explain=line.show,
                )
        except KeyboardInterrupt:
            note(f"{title} goes on; stop it with `kernel-runner leaderboard cancel-validations {sweep.sweep_id}`")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        lines = store.validations(sweep_id=sweep.sweep_id)
    if as_json:
        out_json(json_output.record(sweep, results=[json_output.record(line) for line in lines]))
    else:
        out(render.validations_table(lines))


@commands.command(epilog=example("kernel-runner leaderboard cancel-validations 3"))
def cancel_validations(
    context: typer.Context,
    *,
    sweep_id: Annotated[int, typer.Argument(metavar="SWEEP", callback=possible_id)],
) -> None:
    """Cancel what is left of a validation sweep.

    Prints the number of jobs that leave the queue or are asked to stop; 0 means that all were over. Results stay.
    """
    with session(context).store() as store:
        count = store.cancel_validations(sweep_id)
    typer.echo(count)
