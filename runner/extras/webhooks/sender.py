"""Derives what webhooks tell, and tells it: one message at a time to each target, to all targets side by side.

Any number of processes may do so. A target is one process's for a minute at most, in which it tells it one event and
notes what came of it. Called by `kernel-runner webhook run`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from ipaddress import ip_network
from typing import Any, Final

import httpx2

from runner.base.errors import DatabaseUnavailableError
from runner.base.logs import LogRateLimit, get_logger
from runner.extras.config import SiteConfig, WebhookSecret
from runner.extras.store import AsyncStore
from runner.extras.webhooks import http, messages
from runner.extras.webhooks.queries import QUERIES

_log = get_logger("webhooks")
#: The longest time between two looks at the database: events of it may be lost.
POLL_S: Final = 5.0
#: The shortest: a look takes the server about 3 ms for a ranking of 2,500 scores.
_PAUSE_S: Final = 3.0
#: Names are resolved in threads; one that no server answers for holds its own for long.
_RESOLVERS: Final = 64
_CONNECTIONS: Final = 4


class Sender:
    """One process that tells targets."""

    def __init__(
        self,
        store: AsyncStore,
        over: httpx2.AsyncClient,
        *,
        secrets: Mapping[str, WebhookSecret],
        private_networks: str = "",
        public_url: str | None = None,
    ) -> None:
        """`secrets`: the targets of the configuration."""
        self._store = store
        self._over = over
        self._secrets = secrets
        self._allowed = [ip_network(text.strip()) for text in private_networks.split(",") if text.strip()]
        self._public_url = public_url
        self._limit = LogRateLimit()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def look(self) -> None:
        """Derive what has come about, and begin to tell what waits; returns while that goes on."""
        try:
            await self._store.all("derive_webhooks")
        except DatabaseUnavailableError as error:
            self._away(error)
            return
        await self._begin()

    async def finish(self) -> None:
        """Wait until nothing is being told and, unless stopped, nothing that may be told now waits."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def run(self, stop: asyncio.Event) -> None:
        """Look until told to stop; what is being told then is finished."""
        heard = asyncio.Event()
        listener = asyncio.create_task(self._listen(heard))
        try:
            while not stop.is_set():
                await self.look()
                await _first(stop, timeout_s=_PAUSE_S)
                await _first(stop, heard, timeout_s=POLL_S)
                heard.clear()
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
        self._stopped = True
        await self.finish()

    async def _begin(self) -> None:
        """Take each target that something waits for, and begin to tell it."""
        while not self._stopped:
            holder = str(uuid.uuid4())
            try:
                events = await self._store.all("claim_webhook", configured=list(self._secrets), holder=holder)
            except DatabaseUnavailableError as error:
                self._away(error)
                return
            if not events:
                return
            task = asyncio.create_task(self._tell(events, holder))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, events: Sequence[Mapping[str, Any]], holder: str) -> None:
        """Tell a target the first event, and the next one only if it refuses that."""
        outcomes: list[tuple[Mapping[str, Any], http.Outcome]] = []
        for event in events:
            outcomes.append((event, await self._post(event)))
            if outcomes[-1][1].kind != "refused":
                break
        end = outcomes[-1][1].kind
        if end not in ("told", "ended"):
            # It takes none of them: it is broken, and they wait.
            event, outcome = outcomes[0]
            outcomes = [(event, replace(outcome, kind="failed"))]
        for event, outcome in outcomes:
            given_up = await self._note(event, holder, outcome)
            name, reason = event["name"], outcome.reason
            if outcome.kind == "ended":
                _log.error("webhook_ended", webhook=name, reason=reason, given_up=given_up)
            elif given_up:
                _log.error("webhook_events_given_up", webhook=name, reason=reason, given_up=given_up)
            elif outcome.kind == "failed":
                _log.warning("webhook_failed", webhook=name, reason=reason)
        await self._begin()

    async def _post(self, event: Mapping[str, Any]) -> http.Outcome:
        name, of_board = event["name"], event["url"] is not None
        # Of a leaderboard's own target they are as they were stored, valid or not.
        own = event["url"], event["secret"]
        url, secret = own if of_board else (self._secrets[name].url, self._secrets[name].secret)
        try:
            content = messages.body(event["format"], event, public_url=self._public_url)
            headers = messages.headers(str(event["key"]), int(time.time()), content, secret)
            allowed = self._allowed if of_board else None
            return await http.post(self._over, url or "", content, headers, allowed=allowed)
        except Exception as error:  # noqa: BLE001 - else it would be told again each minute, and never given up
            # Its text may hold the address or the secret.
            return http.Outcome(kind="refused", reason=f"{type(error).__name__} in the sender")

    async def _note(self, event: Mapping[str, Any], holder: str, outcome: http.Outcome) -> int:
        """Note what came of an event, however long the database is away: else it would be told again."""
        while True:
            try:
                row = await self._store.one(
                    "note_webhook",
                    webhook_id=event["webhook_id"],
                    event_id=event["event_id"],
                    holder=holder,
                    outcome=outcome.kind,
                    reason=outcome.reason,
                    retry_after_s=outcome.retry_after_s,
                )
            except DatabaseUnavailableError as error:
                self._away(error)
                if self._stopped:
                    return 0
                await asyncio.sleep(_PAUSE_S)
            else:
                return 0 if row is None else int(row["given_up"])

    async def _listen(self, heard: asyncio.Event) -> None:
        while True:
            try:
                async with self._store.listening() as payloads:
                    async for _ in payloads:
                        heard.set()
            except DatabaseUnavailableError as error:
                self._away(error)
            await asyncio.sleep(POLL_S)

    def _away(self, error: DatabaseUnavailableError) -> None:
        if self._limit.due("away") is not None:
            _log.warning("webhooks_database_away", reason=str(error))


async def serve(config: SiteConfig, dsn: str) -> None:
    """Tell targets until SIGTERM or SIGINT.

    Raises:
        ConfigError: an address or a secret is missing.
        SubmissionError: a leaderboard has a webhook of the same name.
    """
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_RESOLVERS))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    secrets = config.webhook_secrets()
    targets = [webhook.model_dump(include={"name", "format", "events", "boards"}) for webhook in config.webhooks]
    store = AsyncStore(dsn, queries=QUERIES, connections=_CONNECTIONS, name="kernel-runner webhooks")
    await store.open()
    try:
        while not (stop.is_set() or await store.ready()):
            _log.warning(
                "webhooks_wait",
                reason="the database does not answer, or not with this release's version, or its login lacks the role "
                "runner_webhook",
            )
            await _first(stop, timeout_s=POLL_S)
        if stop.is_set():
            return
        for row in await store.begin("runner_webhook", "set_webhooks", targets=json.dumps(targets)):
            _log.warning("webhook_boards_missing", webhook=row["name"], boards=row["missing_boards"])
        _log.info("webhooks_started", targets=[webhook.name for webhook in config.webhooks])
        async with http.client() as over:
            sender = Sender(
                store,
                over,
                secrets=secrets,
                private_networks=config.webhook_private_networks,
                public_url=config.gateway_public_url,
            )
            await sender.run(stop)
    finally:
        await store.close()


async def _first(*events: asyncio.Event, timeout_s: float) -> None:
    """Wait until one of the events is set, or for so long."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
