"""The client: its connection to Discord, its tree of commands, and what it answers when one fails."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import discord
from discord import app_commands

from runner.base import logs
from runner.base.errors import ConfigError, DatabaseUnavailableError, KernelRunnerError
from runner.extras.config import SiteConfig
from runner.extras.discord.answers import answer
from runner.extras.discord.errors import FAILURES, sentence
from runner.extras.discord.following import Follower
from runner.extras.discord.turn import HOLD_S, Turn
from runner.extras.store import AsyncStore

_log: Final = logs.get_logger("discord.client")


class Client(discord.Client):
    """One connection to Discord and the database. Members and their messages are not read."""

    def __init__(self, config: SiteConfig, store: AsyncStore, hold_s: float = HOLD_S) -> None:
        """`hold_s`: as of `Turn`."""
        # Slash commands bring their user and its roles with them.
        super().__init__(intents=discord.Intents(guilds=True), allowed_mentions=discord.AllowedMentions.none())
        self.config = config
        self.store = store
        self.tree = Tree(self)
        self.follower = Follower(self, store, channel_id=config.discord_channel_id)
        self.turn = Turn(store, hold_s)

    async def setup_hook(self) -> None:
        """Open the store, wait for this process's turn, tell Discord the commands, and follow what is open.

        Raises:
            ConfigError: the database's login has not the rights, or the bot is not in the server that is named.
        """
        await self.store.open()
        await self._look_at_rights()
        await self.turn.take()
        if self.config.discord_guild_id is not None:
            await self._sync_only_to(self.config.discord_guild_id)
        await self.tree.sync()
        # What an earlier configuration offered in one server would be there a second time.
        async for guild in self.fetch_guilds(limit=None):
            if guild.id != self.config.discord_guild_id:
                with suppress(discord.Forbidden):
                    await self.tree.sync(guild=guild)
        self.follower.start()
        _log.info("discord_starts", guild_id=self.config.discord_guild_id)

    async def _look_at_rights(self) -> None:
        try:
            await self.store.begin("runner_discord", "discord_open")
        except DatabaseUnavailableError as error:
            _log.warning("look_failed", reason=str(error))

    async def _sync_only_to(self, guild_id: int) -> None:
        """Offer the commands in one server, and no longer in all, where they would be a second time."""
        guild = discord.Object(guild_id)
        self.tree.copy_global_to(guild=guild)
        self.tree.clear_commands(guild=None)
        try:
            await self.tree.sync(guild=guild)
        except discord.Forbidden as error:
            raise ConfigError(
                f"discord_guild_id={guild_id}: the bot is not in that server ({error}); expected the id of a server "
                "that it was added to (docs/discord.md)"
            ) from None

    async def close(self) -> None:
        """Follow nothing any more, leave Discord, then the database."""
        await self.follower.stop()
        await super().close()
        await self.turn.end()
        await self.store.close()


class Tree(app_commands.CommandTree[Client]):
    """All commands; every error of theirs becomes a sentence to the user alone."""

    async def on_error(self, interaction: discord.Interaction[Client], error: app_commands.AppCommandError, /) -> None:
        """Answer with what failed."""
        cause = error.original if isinstance(error, app_commands.CommandInvokeError) else error
        text, is_defect = sentence(cause)
        name = "" if interaction.command is None else interaction.command.qualified_name
        if is_defect:
            _log.error("command_failed", command=name, error=repr(cause), exc_info=cause)
        elif not isinstance(cause, KernelRunnerError):
            _log.warning("command_refused", command=name, reason=str(cause))
        try:
            await answer(interaction, text)
        except FAILURES as failure:
            _log.warning("answer_failed", command=name, error=str(failure))
