"""`discord`: serve slash commands in a Discord server."""

from __future__ import annotations

import typer

from runner.base.errors import ConfigError
from runner.cli.app import app, example, session
from runner.extras.config import SiteConfig
from runner.extras.optional import missing


@app.command(epilog=example("kernel-runner discord"))
def discord(context: typer.Context) -> None:
    """Serve slash commands in a Discord server, in the foreground (docs/discord.md).

    It connects as the login of DATABASE_URL, which needs the role `runner_discord`, and to Discord with the token of
    `discord_token_file`. SIGTERM or Ctrl-C ends it; submissions go on, and the next start follows them. Of several on
    one database one serves, and the others wait.
    """
    if missing("discord"):
        raise ConfigError(
            "the Discord frontend needs discord.py, which this environment has not: install kernel-runner[discord]"
        )
    from runner.extras.discord.serve import serve

    serve(SiteConfig.load(session(context).config_path))
