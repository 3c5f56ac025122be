"""`host`: the daemons that have registered."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli import documents, render
from runner.cli.app import app, example, out, out_json, session

host = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Hosts: where the daemons run.")
app.add_typer(host, name="host")


@host.command("list", epilog=example("kernel-runner host list", "kernel-runner host list --json"))
def list_hosts(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the hosts.

    With their slots, version and when each was last heard of. A host that has not been heard of for longer than its
    lease (30 s by default) is down or cannot reach the database.
    """
    with session(context).store() as store:
        hosts = store.hosts()
    if as_json:
        out_json(documents.hosts(hosts))
    else:
        out(render.hosts_table(hosts))
