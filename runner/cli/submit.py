"""`submit` and `cancel`: put a file into the queue, wait for its verdict, take it back."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runner.base.model import Verdict
from runner.cli import render_submission
from runner.cli.app import ExitCode, Priority, app, example, login_name, note, out, out_json, session
from runner.cli.arguments import possible_id, read_submission, typed_date
from runner.cli.progress import ProgressLine
from runner.cli.view import ShownSubmission, from_store
from runner.cli.wait import wait_until


class SubmitMode(StrEnum):
    """The modes that a submission may ask for."""

    TEST = "test"
    BENCHMARK = "benchmark"
    PROFILE = "profile"
    LEADERBOARD = "leaderboard"
    PRIVATE = "private"


class KernelBase(StrEnum):
    """Which name of a kernel ncu compares."""

    FUNCTION = "function"
    DEMANGLED = "demangled"
    MANGLED = "mangled"


@app.command(
    epilog=example(
        "kernel-runner submit mine.py --user alice --wait",
        "kernel-runner submit mine.py --leaderboard vectoradd --gpu CPU --mode test --wait",
        "kernel-runner submit mine.py --gpu H100 --mode profile --benchmark 0 --kernel 'regex:gemm' --wait",
    )
)
def submit(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    leaderboard: Annotated[
        str | None,
        typer.Option(
            "--leaderboard",
            metavar="L",
            help="Leaderboard.",
            show_default="`#!POPCORN leaderboard L` in the file",
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            metavar="T",
            help="GPU type; repeatable.",
            show_default="`#!POPCORN gpus T T…` in the file, or the only type",
        ),
    ] = None,
    mode: Annotated[
        SubmitMode,
        typer.Option(
            "--mode",
            help="`leaderboard` adds a secret run; `private` is only that, unscored.",
        ),
    ] = SubmitMode.LEADERBOARD,
    user: Annotated[
        str | None, typer.Option("--user", metavar="U", help="User id.", show_default="your login name")
    ] = None,
    user_name: Annotated[
        str | None, typer.Option("--user-name", metavar="NAME", help="Name shown in rankings.")
    ] = None,
    priority: Priority = 0,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="The same key gives the same submission again."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="T", help="Not begun before T: `2026-05-01T14:00+02:00` or `'in 2 hours'`."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="T", help="Cancelled if no host has begun it by T."),
    ] = None,
    benchmark: Annotated[
        int | None,
        typer.Option("--benchmark", metavar="N", min=0, help="Profile benchmark N alone, counted from 0."),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="NAME", help="Capture kernels of this name with ncu; or `regex:EXPRESSION`."),
    ] = None,
    kernel_base: Annotated[
        KernelBase | None,
        typer.Option("--kernel-base", help="Which name that is.", show_default="function"),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option("--launches", metavar="N", min=1, help="Capture at most N launches.", show_default="10"),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the verdict.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="S", min=0, help="Stop waiting after S seconds; exit code 3."),
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="As for `status`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; without --wait `{submission_id}`.")] = False,
) -> None:
    """Submit a file to a leaderboard.

    Prints the submission's number. With --wait, shows progress on stderr, then the results as `status` does; the exit
    code tells the verdict. Ctrl-C and --timeout end the waiting, not the submission.

    --benchmark, --kernel, --kernel-base and --launches are for mode `profile`.
    """
    current = session(context)
    code = read_submission(file)
    options = {"benchmark": benchmark, "kernel": kernel, "kernel_base": kernel_base, "launches": launches}
    with current.store() as store:
        submission_id = store.submit(
            leaderboard=None if leaderboard is None else store.board_name(leaderboard),
            user_id=login_name("say who submits with --user") if user is None else user,
            user_name=user_name,
            file_name=file.name,
            code=code,
            mode=mode.value,
            gpu_types=gpu,
            priority=priority,
            idempotency_key=idempotency_key,
            start_at=None if start is None else typed_date(store, start, "--start"),
            expires_at=None if expires is None else typed_date(store, expires, "--expires"),
            options={name: value for name, value in options.items() if value is not None} or None,
        )
        if not wait:
            _say_number(submission_id, as_json=as_json)
            return
        note(f"submission {submission_id} is in the queue")
        try:
            with ProgressLine() as line:

                def show(view: ShownSubmission) -> None:
                    line.show(render_submission.waiting_text(view))

                view = wait_until(
                    lambda: from_store(store.submission(submission_id, admin=admin), admin=admin),
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
        out(render_submission.submission_page(view))
    raise typer.Exit(exit_code_of(view))


def exit_code_of(view: ShownSubmission) -> ExitCode:
    """0 accepted; 3 if our side failed; 1 for every other verdict, and for a submission that was cancelled."""
    if view.status.verdict is Verdict.ACCEPTED:
        return ExitCode.OK
    return ExitCode.INFRASTRUCTURE if view.status.verdict is Verdict.INTERNAL_ERROR else ExitCode.NOT_ACCEPTED


@app.command(epilog=example("kernel-runner cancel 17 --user alice"))
def cancel(
    context: typer.Context,
    *,
    submission_id: Annotated[int, typer.Argument(metavar="ID", callback=possible_id)],
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="U",
            help="Act for user U: only their submission, no rerun by an operator.",
        ),
    ] = None,
) -> None:
    """Cancel a submission.

    Prints the number of jobs that leave the queue or are asked to stop; 0 means that all were over.
    """
    with session(context).store() as store:
        count = store.cancel(submission_id, user)
    typer.echo(count)


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
