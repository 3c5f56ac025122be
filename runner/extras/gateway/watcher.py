"""Tells streams that something happened to their submission: from the database's events, and by looking now and then.

One connection listens for all streams, and one statement looks for all of them, so a thousand streams cost little.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from runner.base.errors import DatabaseUnavailableError
from runner.base.logs import get_logger
from runner.extras.gateway.metrics import Metrics
from runner.extras.store import AsyncStore
from runner.store.session import load_json

_log = get_logger("gateway.watcher")
#: How often it is looked which submissions are over: events may be lost.
LOOK_S: Final = 5.0
_PAUSE_S: Final = 2.0


class Watcher:
    """Wakes those who follow a submission."""

    def __init__(self, store: AsyncStore, metrics: Metrics, heard: Callable[[Sequence[int]], None]) -> None:
        """`heard`: is told the submissions of each event, and nothing when some may have been missed."""
        self._store = store
        self._metrics = metrics
        self._heard = heard
        self._followers: dict[int, set[asyncio.Event]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        #: The process is to stop: streams end, and submissions go on.
        self.leaving = False

    def start(self) -> None:
        """Begin to listen and to look."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._look())]

    async def stop(self) -> None:
        """End both, and let every follower look once more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._wake(list(self._followers))

    def leave(self) -> None:
        """Let every stream end."""
        self.leaving = True
        self._wake(list(self._followers))

    @asynccontextmanager
    async def follow(self, submission_id: int) -> AsyncIterator[asyncio.Event]:
        """An event that is set when something may have happened to the submission; to be cleared by who waits."""
        event = asyncio.Event()
        self._followers.setdefault(submission_id, set()).add(event)
        try:
            yield event
        finally:
            mine = self._followers.get(submission_id, set())
            mine.discard(event)
            if not mine:
                self._followers.pop(submission_id, None)

    def _wake(self, ids: list[int]) -> None:
        for submission_id in ids:
            for event in self._followers.get(submission_id, ()):
                event.set()

    async def _listen(self) -> None:
        while True:
            try:
                async with self._store.listening() as payloads:
                    self._metrics.listening.set(1)
                    # What happened while nothing was heard.
                    self._wake(list(self._followers))
                    self._heard(())
                    async for payload in payloads:
                        ids = _concerned(payload)
                        self._wake(ids)
                        self._heard(ids)
            except DatabaseUnavailableError as error:
                _log.warning("listening_failed", reason=str(error))
            finally:
                self._metrics.listening.set(0)
            await asyncio.sleep(_PAUSE_S)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            ids = list(self._followers)
            if not ids:
                continue
            try:
                self._wake([row["id"] for row in await self._store.all("finished", ids=ids)])
            except DatabaseUnavailableError:
                # The listener says so.
                continue


def _concerned(payload: str) -> list[int]:
    """The submissions of an event; every login of the database may send any."""
    event = load_json(payload)
    if not isinstance(event, dict):
        return []
    several = event.get("submissions")
    ids = [event.get("submission_id"), *(several if isinstance(several, list) else [])]
    return [item for item in ids if isinstance(item, int)]
