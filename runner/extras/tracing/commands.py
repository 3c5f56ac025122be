"""`traces`: send the traces of jobs to an OpenTelemetry collector."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from runner.base.errors import ConfigError
from runner.cli.app import ExitCode, app, example, fail, note, session
from runner.cli.dates import typed_date
from runner.extras.optional import missing

_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_NOW = "0 seconds"


@app.command(epilog=example("kernel-runner traces --endpoint http://localhost:4318"))
def traces(
    context: typer.Context,
    *,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="The collector, e.g. `http://localhost:4318`; else OTEL_EXPORTER_OTLP_ENDPOINT says it.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="T", help="Begin with jobs that ended at T: `2026-05-01T14:00+02:00` or `'2 hours ago'`."
        ),
    ] = None,
    every_s: Annotated[
        float, typer.Option("--every", metavar="S", min=0.2, max=3600.0, help="Look for ended jobs every S seconds.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Send what has ended, and end.")] = False,
) -> None:
    """Send a trace of every job that ends to an OpenTelemetry collector, by OTLP over HTTP (docs/operations.md).

    One process is enough for a site. It reads the database with role `runner_operator`. It begins now, or at `--since`.
    A job that is sent twice has the same ids.
    """
    if missing(*_NEEDED):
        raise ConfigError(
            "traces need the OpenTelemetry SDK and its OTLP exporter, which this environment has not: install "
            "kernel-runner[otel]"
        )
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"--endpoint is {endpoint!r}, expected an address like http://localhost:4318")
    from runner.extras.tracing.exporter import Exporter, follow

    stop = threading.Event()
    with session(context).store() as store:
        exporter = Exporter(
            endpoint, since=store.moment(_NOW) if since is None else typed_date(store, since, "--since")
        )
        try:
            if once:
                count = exporter.export(store)
                if count is None:
                    fail("the collector did not take the spans; is it running, and is its address right?")
                    raise typer.Exit(ExitCode.INFRASTRUCTURE)
                _tell(count)
                return
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
            follow(
                exporter,
                store,
                every_s=every_s,
                stop=stop,
                told=lambda count: note(f"traces of {count} jobs were sent"),
            )
        finally:
            exporter.close()


def _tell(count: int) -> None:
    note(f"traces of {count} jobs were sent")
