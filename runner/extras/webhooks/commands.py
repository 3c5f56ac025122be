"""`webhook`: chats and programs that are told what happens: list, try, add and remove them, and the service."""

from __future__ import annotations

import asyncio
import base64
import secrets
import sys
from typing import Annotated, Literal

import typer
from rich.text import Text

from runner.base import logs, units
from runner.base.errors import ConfigError, SubmissionError
from runner.base.safe import one_line
from runner.cli.app import ExitCode, app, direct_url, example, note, out, out_json, session
from runner.cli.progress import ProgressLine
from runner.cli.render import make_table
from runner.cli.wait import wait_until
from runner.extras.config import BOARD_EVENTS, SiteConfig
from runner.extras.optional import missing
from runner.extras.webhooks.queries import QUERIES

webhook = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Webhooks: chats and programs that are told.")
app.add_typer(webhook, name="webhook")

_Name = Annotated[str, typer.Argument(metavar="NAME")]


@webhook.command(epilog=example("kernel-runner webhook run"))
def run(context: typer.Context) -> None:
    """Tell targets what happens, in the foreground (docs/webhooks.md).

    It connects as the login of DATABASE_URL, which needs the role `runner_webhook`. Any number may run, with the same
    configuration. SIGTERM or Ctrl-C ends it; the next one goes on where it was.
    """
    if missing("httpx2"):
        raise ConfigError("webhooks need httpx2, which this environment has not: install kernel-runner[gateway]")
    from runner.extras.webhooks.sender import serve

    config = SiteConfig.load(session(context).config_path)
    logs.configure(config.log_format, config.log_level)
    asyncio.run(serve(config, direct_url(config)))


@webhook.command("list", epilog=example("kernel-runner webhook list"))
def list_webhooks(
    context: typer.Context, *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List the targets.

    One is `up`, `failing` (tried again for a day), or `ended` (it answered 410). Those of the configuration are there
    once `webhook run` has begun; of those it also says which of their leaderboards are not there.
    """
    with session(context).store() as store:
        lines = store.all(QUERIES["webhooks"])
    if as_json:
        out_json(lines)
        return
    table = make_table("name", "format", "of", "state", "last told", "waiting", "given up", "why", "next try")
    for line in lines:
        since = "" if line["failing_since"] is None else f" since {units.moment(line['failing_since'])}"
        missing_boards = ", ".join(line["missing_boards"])
        why = (line["reason"], f"no leaderboard: {missing_boards}" if missing_boards else None)
        cells = (
            *(line["name"], line["format"], line["leaderboard"] or "configuration", line["state"] + since),
            *(units.moment(line["told_at"]), str(line["waiting"]), str(line["given_up"]), "; ".join(filter(None, why))),
            "" if line["state"] == "ended" else units.moment(line["retry_at"]),
        )
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    out(table)


@webhook.command(epilog=example("kernel-runner webhook test news"))
def test(context: typer.Context, name: _Name) -> None:
    """Let a target be told a message that says nothing, and wait until it has answered.

    It comes after what waits already, and at once: a pause after failures ends, and a target that has ended begins
    again. Needs a `webhook run` that goes on. Exit code 1 if the target fails.
    """
    with session(context).store() as store:
        event_id = store.all(QUERIES["test_webhook"], name=name)[0]["event_id"]

        def state() -> tuple[bool, str | None]:
            waits = bool(store.all(QUERIES["webhook_waits"], event_id=event_id)[0]["waits"])
            line = next((line for line in store.all(QUERIES["webhooks"]) if line["name"] == name), None)
            if line is None:
                raise SubmissionError(f"webhook {name!r} has been removed meanwhile")
            # Before the target has answered, its pause is over.
            return waits, line["reason"] if line["state"] == "ended" or line["retry_at"] is not None else None

        with ProgressLine() as progress:
            answer = wait_until(
                state,
                lambda answer: not answer[0] or answer[1] is not None,
                show=lambda _: progress.show(
                    f"webhook {name} has not answered; does `kernel-runner webhook run` go on?"
                ),
                explain=progress.show,
            )
    # Without a time limit there is an answer.
    if answer is not None and answer[1] is not None:
        note(f"webhook {name} fails: {one_line(answer[1])}")
        raise typer.Exit(ExitCode.NOT_ACCEPTED)
    note(f"webhook {name} has been told")


@webhook.command(epilog=example("kernel-runner webhook add vectoradd class --format slack < url"))
def add(
    context: typer.Context,
    *,
    board: Annotated[str, typer.Argument(metavar="BOARD")],
    name: _Name,
    form: Annotated[Literal["discord", "slack", "json"], typer.Option("--format", help="What it understands.")],
    events: Annotated[
        list[str] | None,
        typer.Option("--event", metavar="E", help="An event that it gets; may be repeated.", show_default="all"),
    ] = None,
) -> None:
    """Register a target for one leaderboard; its address is read from standard input.

    The address leads to a public host, or into webhook_private_networks. For `json`, the secret that messages are
    signed with is printed, once.
    """
    url = sys.stdin.read().strip()
    secret = None if form != "json" else f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
    values = {"url": url, "format": form, "events": events or list(BOARD_EVENTS), "secret": secret}
    with session(context).store() as store:
        store.all(QUERIES["add_webhook"], leaderboard=board, name=name, **values)
    if secret is not None:
        typer.echo(secret)
    note(f"webhook {name} gets the events of leaderboard {board}")


@webhook.command(epilog=example("kernel-runner webhook remove class"))
def remove(context: typer.Context, name: _Name) -> None:
    """Forget a leaderboard's target, and what waits for it.

    Take one of the configuration out there; the next `webhook run` forgets it.
    """
    with session(context).store() as store:
        store.all(QUERIES["remove_webhook"], name=name)
    note(f"webhook {name} is gone")
