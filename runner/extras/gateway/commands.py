"""`gateway`: serve HTTP, for popcorn-cli, kernelboard and people with a browser."""

from __future__ import annotations

import typer

from runner.cli.app import app, example, session
from runner.errors import ConfigError
from runner.optional import missing

_NEEDED = ("starlette", "uvicorn", "jinja2", "python_multipart", "httpx2")


@app.command(epilog=example("kernel-runner gateway"))
def gateway(context: typer.Context) -> None:
    """Serve KernelBot's HTTP API and pages for people, in the foreground (docs/gateway.md).

    It connects as the login of DATABASE_URL, which needs the role `runner_gateway`, and listens at `gateway_listen`.
    SIGTERM or Ctrl-C ends it; a submission that was accepted goes on.
    """
    absent = missing(*_NEEDED)
    if absent:
        raise ConfigError(
            f"the gateway needs {', '.join(absent)}, which this environment has not: install kernel-runner[gateway]"
        )
    from runner.extras.gateway.server import serve

    serve(session(context).config)
