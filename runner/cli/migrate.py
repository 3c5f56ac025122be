"""`migrate`: bring a database to the version this release needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from runner.base.gpu_types import Registry
from runner.cli.app import Session, app, direct_url, example, note, session
from runner.cli.task_faults import TaskFaults, task_faults
from runner.store import migrate as apply_migrations
from runner.store import roles_sql


@app.command(
    epilog=example(
        "kernel-runner migrate", "kernel-runner migrate --print-roles | psql postgresql://admin@db.example/kernelbot"
    )
)
def migrate(
    context: typer.Context,
    *,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles",
            help="Also create `runner_daemon`, `runner_frontend`, `runner_operator`, `runner_readonly`, "
            "`runner_gateway`, `runner_discord`, `runner_kernelboard`, "
            "`runner_webhook` (docs/security.md#the-database).",
        ),
    ] = False,
    print_roles: Annotated[bool, typer.Option("--print-roles", help="Only print the SQL for the roles.")] = False,
) -> None:
    """Create or update the database schema.

    It can be repeated, and started in several places at once. Prints the versions applied. Publishes the GPU types that
    this machine's configuration knows: `rerun` and `invalidate` follow no alias that only a daemon's login published.
    Sets how often jobs are tried again, as the configuration says (`max_attempts`). Tables of KernelBot are used as
    they are; if they differ from what is expected, nothing is done and the differences are listed.
    """
    if print_roles:
        typer.echo(roles_sql(), nl=False)
        return
    for version in (applied := bring_up_to_date(session(context), roles=roles)):
        typer.echo(version)
    note("the database is up to date" if not applied else f"{len(applied)} versions applied")


def bring_up_to_date(current: Session, *, roles: bool = False) -> Sequence[str]:
    """Create or update the schema, and write what all hosts share: limits of retries, GPU types. Versions applied."""
    config = current.config
    registry = Registry.load(config.gpus_dir)
    applied = apply_migrations(direct_url(config), roles=roles)
    with current.store() as store:
        store.set_retry(
            max_attempts=config.max_attempts,
            pause_s=config.retry_pause_s,
            pause_max_s=config.retry_pause_max_s,
            max_lost_leases=config.max_lost_leases,
            max_unanswered_claims=config.max_unanswered_claims,
        )
        for text in (task_faults(store) or TaskFaults()).texts():
            note(text)
        store.sync_gpu_types(
            [(entry.name, entry.vendor.value, entry.aliases, entry.description) for entry in registry.all()]
        )
    return applied
