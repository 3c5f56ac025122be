"""Which process is the bot: one per database, since two would answer everything twice. Used by the client."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from typing import Final

from runner.base import logs
from runner.base.errors import DatabaseUnavailableError
from runner.extras.store import AsyncStore

_log: Final = logs.get_logger("discord.turn")
#: How often a process says that it is the bot; one that has said nothing for three times as long may be replaced.
HOLD_S: Final = 10.0


class Turn:
    """A process's turn to be the bot."""

    def __init__(self, store: AsyncStore, hold_s: float = HOLD_S) -> None:
        self._store = store
        self._hold_s = hold_s
        self._holder: Final = str(uuid.uuid4())
        self._keeping: asyncio.Task[None] | None = None
        #: Set when another process has become the bot.
        self.lost = asyncio.Event()

    async def take(self) -> None:
        """Wait until no other process is the bot, and be it from now on.

        In an outage it goes on at once: `lost` says later whether another process is the bot.

        Raises:
            ConfigError: the database's login has not the rights.
        """
        with suppress(DatabaseUnavailableError):
            while not await self._hold(3 * self._hold_s):
                _log.warning("discord_waits", reason="another process serves Discord from this database")
                await asyncio.sleep(self._hold_s)
        self._keeping = asyncio.create_task(self._keep())

    async def end(self) -> None:
        """Let another process be the bot."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
            with suppress(DatabaseUnavailableError):
                await self._hold(0)

    async def _keep(self) -> None:
        while not self.lost.is_set():
            await asyncio.sleep(self._hold_s)
            with suppress(DatabaseUnavailableError):
                if not await self._hold(3 * self._hold_s):
                    self.lost.set()

    async def _hold(self, seconds: float) -> bool:
        (row,) = await self._store.begin("runner_discord", "hold_discord", holder=self._holder, seconds=seconds)
        return bool(row["held"])
