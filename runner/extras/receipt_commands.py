"""`receipt`: signed statements of results, printed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runner.base.errors import DataError, NotFoundError, ReceiptError
from runner.base.safe import one_line
from runner.cli.app import ExitCode, app, example, note, session
from runner.cli.arguments import possible_id
from runner.extras import receipts
from runner.extras.queries import SHARED
from runner.extras.receipts import HostKey

receipt = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Receipts: signed statements of ranked results."
)
app.add_typer(receipt, name="receipt")


@receipt.command(epilog=example("kernel-runner receipt show 3 > receipt.json"))
def show(context: typer.Context, job_id: Annotated[int, typer.Argument(metavar="JOB", callback=possible_id)]) -> None:
    """Print the receipt of a job; `status --json` has the ids of a submission's jobs.

    An accepted ranked submission has two on each GPU type: of the public job, whose score ranks, and of the secret one,
    without which it would not.
    """
    with session(context).store() as store:
        results = store.all(SHARED["signed_result"], job_id=job_id)
    if not results:
        raise NotFoundError(f"job {job_id} has no receipt; accepted jobs of mode leaderboard have one")
    typer.echo(receipts.text_of(results[0]["statement"], results[0]["key"], results[0]["signature"]))


@receipt.command(epilog=example("kernel-runner receipt verify receipt.json --keys keys.json"))
def verify(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A receipt.")],
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys", metavar="FILE", help="Public keys, as a gateway's /keys has them.", show_default="the database's"
        ),
    ] = None,
) -> None:
    """Check a receipt: is it from the host that it names, and what became of the result?

    With --keys the signature alone is checked, without a database. Exit code 1 if the receipt is not to be believed, or
    the database says something else.
    """
    listed = None if keys is None else receipts.keys_in(keys)
    try:
        # What is not ASCII is refused with all else that is no receipt.
        given = file.read_bytes().decode("ascii", "replace")
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error
    try:
        whole = receipts.read(given)
        if listed is not None:
            statement, wrong, standing = receipts.check(whole, listed), list[str](), "not looked up"
        else:
            with session(context).store() as store:
                statement = receipts.check(whole, [HostKey(**key) for key in store.all(SHARED["host_keys"])])
                results = store.all(SHARED["signed_result"], job_id=statement["job_id"])
            wrong, standing = receipts.standing(whole, statement, results[0] if results else None)
    except ReceiptError as error:
        note(f"kernel-runner: {file}: {one_line(str(error))}")
        raise typer.Exit(ExitCode.NOT_ACCEPTED) from None
    typer.echo(one_line(receipts.summary(statement)))
    typer.echo(f"the result: {one_line(standing)}")
    for line in wrong:
        typer.echo(one_line(line))
    if wrong:
        raise typer.Exit(ExitCode.NOT_ACCEPTED)
