"""Makes the client with all its commands, and runs it; called by `kernel-runner discord`."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

import discord

from runner.base import logs
from runner.base.errors import ConfigError, InfrastructureError
from runner.extras.config import SiteConfig
from runner.extras.discord import admin, boards, reading, submitting
from runner.extras.discord.client import Client
from runner.extras.discord.errors import FAILURES
from runner.extras.discord.groups import ADMIN, LEADERBOARD
from runner.extras.discord.queries import QUERIES
from runner.extras.discord.turn import HOLD_S
from runner.extras.store import AsyncStore
from runner.store import direct_address

_CONNECTIONS: Final = 8
#: Modules whose commands are in the groups once they are imported.
COMMANDS: Final = (admin, boards, reading, submitting)


def build(config: SiteConfig, store: AsyncStore, hold_s: float = HOLD_S) -> Client:
    """The client with all its commands, not connected yet; `hold_s`: as of `Turn`."""
    client = Client(config, store, hold_s)
    client.tree.add_command(LEADERBOARD)
    client.tree.add_command(ADMIN)
    return client


def serve(config: SiteConfig) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: no database, no token, or one that Discord refuses.
        InfrastructureError: Discord cannot be reached at the start, or ends the connection for good, as of a token that
            was reset; else it is waited for. Or another process has become the bot.
    """
    logs.configure(config.log_format, config.log_level)
    token = config.secret("discord_token")
    if not token:
        raise ConfigError("no token: set discord_token_file to a file with the bot's token (docs/discord.md)")
    dsn = direct_address(config.require_database_url(), config.direct_host)
    store = AsyncStore(dsn, queries=QUERIES, connections=_CONNECTIONS, name="kernel-runner discord")
    try:
        asyncio.run(_run(build(config, store), token))
    except discord.LoginFailure as error:
        raise ConfigError(f"Discord refuses the token of discord_token_file: {error}; make a new one") from None
    except (*FAILURES, discord.DiscordException) as error:
        reason = str(error) or type(error).__name__
        raise InfrastructureError(f"Discord cannot be reached: {reason}; systemd starts the bot again") from error


async def _run(client: Client, token: str) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is None:
        raise TypeError("no task runs this coroutine")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        async with client:
            serving, lost = asyncio.create_task(client.start(token)), asyncio.create_task(client.turn.lost.wait())
            try:
                await asyncio.wait((serving, lost), return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    raise InfrastructureError(
                        "another process serves Discord from this database, since this one did not reach the database "
                        "for half a minute; run one bot"
                    )
                await serving
            finally:
                serving.cancel()
                lost.cancel()
                await asyncio.gather(serving, lost, return_exceptions=True)
    except asyncio.CancelledError:
        # The end wanted, not a failure.
        return
