"""`migrate`: bring a database to the version this release needs."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli.app import app, example, note, session
from runner.store import migrate as apply_migrations
from runner.store.migrate import roles_sql


@app.command(
    epilog=example(
        "kernel-runner migrate",
        "kernel-runner migrate --print-roles | psql postgresql://admin@db.example/kernelbot",
    )
)
def migrate(
    context: typer.Context,
    *,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles", help="Also create the roles runner_daemon, runner_frontend, runner_operator and runner_readonly."
        ),
    ] = False,
    print_roles: Annotated[
        bool, typer.Option("--print-roles", help="Print the SQL that creates the roles, and change nothing.")
    ] = False,
) -> None:
    """Create or update the database schema.

    Everything happens in one transaction, so it is safe to repeat and safe to start in several places at once. Tables
    that KernelBot has made are used as they are and never changed; if they are not what this release expects, nothing
    is done and the differences are listed. Prints the versions applied.
    """
    if print_roles:
        typer.echo(roles_sql(), nl=False)
        return
    applied = apply_migrations(session(context).config.require_database_url(), roles=roles)
    for version in applied:
        typer.echo(version)
    note("the database is up to date" if not applied else f"{len(applied)} versions applied")
