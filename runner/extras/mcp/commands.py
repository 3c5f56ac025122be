"""The command of the MCP server, which also prints the skill file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer
import yaml

from runner.base.environment import process_environment
from runner.base.errors import ConfigError
from runner.base.marks import ENCODING
from runner.cli.app import app, example
from runner.extras.optional import missing

_NEEDED: Final = ("mcp", "httpx2")
#: The user's token, and the file that popcorn-cli keeps it in.
_TOKEN_VARIABLE: Final = "POPCORN_CLI_ID"  # noqa: S105 - a name
_POPCORN: Final = ".popcorn.yaml"


@app.command(
    epilog=example(
        "kernel-runner mcp --gateway https://kernels.example", "kernel-runner mcp --skill > .claude/skills/k/SKILL.md"
    )
)
def mcp(
    *,
    gateway: Annotated[
        str | None,
        typer.Option("--gateway", metavar="URL", envvar="POPCORN_API_URL", help="Address of the gateway."),
    ] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(
            "--folder", metavar="DIR", help="Submit files from here if the client names no roots; repeatable."
        ),
    ] = None,
    skill: Annotated[
        bool, typer.Option("--skill", help="Print the skill file, SKILL.md, and end: how to work on a leaderboard.")
    ] = False,
) -> None:
    """Serve a coding agent by the Model Context Protocol, over stdin and stdout (docs/agents.md).

    Clients start it by themselves. It works as the user whose token is POPCORN_CLI_ID, or `cli_id` in ~/.popcorn.yaml.
    Without --folder files come from the working directory.
    """
    if skill:
        typer.echo(files("runner.extras.mcp").joinpath("SKILL.md").read_text(encoding="utf-8"), nl=False)
        return
    absent = missing(*_NEEDED)
    if absent:
        raise ConfigError(
            f"the MCP server needs {', '.join(absent)}, which this environment has not: install kernel-runner[mcp]"
        )
    from runner.extras.mcp.gateway import Gateway
    from runner.extras.mcp.server import build

    # Not the absolute path: a working directory that has been removed has none.
    build(Gateway(url=gateway, token=_token()), folder or [Path()]).run()


def _token() -> str | None:
    """The user's token; None: there is none, which the first call that needs one says."""
    given = process_environment().get(_TOKEN_VARIABLE)
    if given:
        return given.strip()
    try:
        kept = yaml.safe_load((Path.home() / _POPCORN).read_text(encoding=ENCODING))
    except (FileNotFoundError, RuntimeError):
        # No such file, or a user without a home directory, as in containers.
        return None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"~/{_POPCORN} cannot be read ({error}); mend it, or set {_TOKEN_VARIABLE}") from error
    token = kept.get("cli_id") if isinstance(kept, dict) else None
    return str(token) if token else None
