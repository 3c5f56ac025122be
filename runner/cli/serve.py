"""`serve`: run the daemon in this process."""

from __future__ import annotations

import faulthandler
from contextlib import suppress

import typer

from runner.cli.app import app, example, session
from runner.daemon import serve as run_daemon


@app.command(epilog=example("kernel-runner serve"))
def serve(context: typer.Context) -> None:
    """Run the daemon in the foreground.

    It waits for a database or an engine that is away. SIGTERM or Ctrl-C finishes the current runs and exits with 0; a
    second one returns them to the queue and stops at once (docs/operations.md).
    """
    config = session(context).config
    with suppress(OSError):
        # A daemon that is ended for hanging says where each of its threads stood; no values are shown.
        faulthandler.enable()
    raise typer.Exit(run_daemon(config))
