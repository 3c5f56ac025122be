"""`watch`: a screen that follows the fleet: hosts, slots, what runs, the queue, the newest verdicts.

Works over ssh in any terminal with a cursor. Each refresh costs the database seven short statements.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.live import Live

from runner.base.errors import DatabaseUnavailableError
from runner.cli import screen
from runner.cli.app import ExitCode, app, console, example, fail, out, session
from runner.cli.safe import one_line
from runner.store import Store

#: More rows than any terminal has.
_LIMIT: Final = 500


@app.command(epilog=example("kernel-runner watch --once"))
def watch(
    context: typer.Context,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, for pipes and scripts.")] = False,
    every_s: Annotated[
        float, typer.Option("--every", metavar="S", min=0.2, max=3600.0, help="Refresh every S seconds.")
    ] = 2.0,
) -> None:
    """Watch hosts, slots, queue, batches and verdicts.

    Ctrl-C ends it. Secret runs show no progress. A slot that is not used or ranks nothing says why; `?` is a job that
    has not reported yet. While the database is away, the first line says so. `watch` and `logs` need only role
    `runner_operator`.
    """
    with session(context).store() as store:
        if once:
            scene = look(store)
            out(screen.frame(scene, head=screen.headline(scene, datetime.now(UTC))))
        elif console(stderr=False).is_terminal:
            follow(store, every_s=every_s)
        else:
            fail("watch needs a terminal; `kernel-runner watch --once` prints one frame")
            raise typer.Exit(ExitCode.USAGE)


def look(store: Store) -> screen.Scene:
    """What there is to see now."""
    return screen.Scene(
        hosts=store.hosts(),
        running=store.running(limit=_LIMIT),
        queue=store.queue_depths(),
        pauses=store.pauses(),
        latest=store.latest(limit=_LIMIT),
        throughput=store.throughput(),
        batches=store.open_batches(limit=_LIMIT),
    )


def follow(store: Store, *, every_s: float) -> None:
    """Show the screen until Ctrl-C, through outages of the database too."""
    terminal = console(stderr=False)
    scene = screen.Scene(hosts=(), running=(), queue=(), latest=(), throughput=())
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        while True:
            try:
                scene = look(store)
                head = screen.headline(scene, datetime.now(UTC))
            except DatabaseUnavailableError as error:
                head = f"the database is away, trying again: {one_line(str(error))}"
            live.update(screen.frame(scene, height=terminal.size.height, head=head), refresh=True)
            time.sleep(every_s)
