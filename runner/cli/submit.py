"""`submit` and `cancel`: put a file into the queue, wait for its verdict, take it back."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from runner.cli import render
from runner.cli.app import ExitCode, app, example, note, out, out_json, session
from runner.cli.files import read_submission
from runner.cli.progress import ProgressLine
from runner.cli.view import ShownSubmission, from_store
from runner.cli.wait import wait_until
from runner.model import Mode, Verdict


@app.command(
    epilog=example(
        "kernel-runner submit my_kernel.py --leaderboard vectoradd --gpu CPU --mode test --wait",
        "kernel-runner submit my_kernel.py --mode leaderboard --wait --json   # board named by a #!POPCORN line",
    )
)
def submit(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The submission.", exists=True, dir_okay=False)],
    leaderboard: Annotated[
        str | None,
        typer.Option("--leaderboard", metavar="L", help="Default: the file's `#!POPCORN leaderboard NAME` line."),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            metavar="T",
            help="GPU type; may be repeated. Default: the file's `#!POPCORN gpus` line, else the board's only type.",
        ),
    ] = None,
    mode: Annotated[Mode, typer.Option("--mode", help="What to do with it.")] = Mode.LEADERBOARD,
    user: Annotated[str | None, typer.Option("--user", metavar="U", help="User id. Default: your login name.")] = None,
    user_name: Annotated[
        str | None, typer.Option("--user-name", metavar="NAME", help="Name shown in rankings.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first.")] = 0,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="The same key gives the same submission, not a second."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the verdict and show the results.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="S", min=0, help="Stop waiting after so many seconds.")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="Show the details of secret runs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Submit a file to a leaderboard.

    Prints the submission's number and returns; with --wait, stays until the verdict is there, shows the progress on
    stderr and exits with 0 if it was accepted and 1 if not. Mode `leaderboard` also makes a secret run, and a score is
    ranked only if both pass. Ctrl-C ends the waiting, not the submission.
    """
    current = session(context)
    code = read_submission(file)
    with current.store() as store:
        submission_id = store.submit(
            leaderboard=leaderboard,
            user_id=user or _login_name(),
            user_name=user_name,
            file_name=file.name,
            code=code,
            mode=mode.value,
            gpu_types=gpu,
            priority=priority,
            idempotency_key=idempotency_key,
        )
        if not wait:
            _say_number(submission_id, as_json=as_json)
            return
        note(f"submission {submission_id} is in the queue")
        try:
            with ProgressLine() as line:

                def show(view: ShownSubmission) -> None:
                    line.show(render.waiting_text(view))

                view = wait_until(
                    lambda: from_store(store.submission(submission_id), admin=admin),
                    lambda view: view.over,
                    show=show,
                    explain=line.show,
                    timeout_s=timeout,
                )
        except KeyboardInterrupt:
            _say_it_goes_on(submission_id, "no longer waiting")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        if view is None:
            _say_it_goes_on(submission_id, f"no verdict after {timeout:g} s")
            raise typer.Exit(ExitCode.INFRASTRUCTURE)
    if as_json:
        out_json(view.to_json())
    else:
        out(render.submission_page(view))
    raise typer.Exit(exit_code_of(view))


def exit_code_of(view: ShownSubmission) -> ExitCode:
    """0 accepted; 3 if our side failed; 1 for every other verdict, and for a submission that was cancelled."""
    if view.verdict is Verdict.ACCEPTED:
        return ExitCode.OK
    return ExitCode.INFRASTRUCTURE if view.verdict is Verdict.INTERNAL_ERROR else ExitCode.NOT_ACCEPTED


@app.command(epilog=example("kernel-runner cancel 17", "kernel-runner cancel 17 --user alice"))
def cancel(
    context: typer.Context,
    *,
    submission_id: Annotated[int, typer.Argument(metavar="ID", help="Number of the submission.")],
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="U",
            help="Act for this user: only their submission, and no rerun that an operator ordered.",
        ),
    ] = None,
) -> None:
    """Cancel a submission.

    Takes its queued jobs out of the queue, asks the running ones to stop, and prints how many jobs that were; 0 means
    that everything was over already.
    """
    with session(context).store() as store:
        count = store.cancel(submission_id, user)
    typer.echo(count)


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise typer.BadParameter("this process has no login name; say who submits", param_hint="--user") from error


def _say_number(submission_id: int, *, as_json: bool) -> None:
    if as_json:
        out_json({"submission_id": submission_id})
    else:
        typer.echo(submission_id)


def _say_it_goes_on(submission_id: int, why: str) -> None:
    note(
        f"kernel-runner: {why}; submission {submission_id} goes on. "
        f"See it with `kernel-runner status {submission_id}`, stop it with `kernel-runner cancel {submission_id}`."
    )
