"""The client for coroutines: items in, results out, however many there are.

At most `outstanding` items of a client wait or run in the database. The rest waits here, so a list of a million is no
burden. One coroutine asks for the results of all callers. Keys make every call repeatable: after a crash a caller
submits the same items again and gets the results that exist already.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, NoReturn, Self, SupportsIndex

from runner.base.errors import DatabaseUnavailableError, SubmissionError
from runner.extras.store import AsyncStore, RefusedError
from runner.extras.trainers.client.home import Home
from runner.extras.trainers.client.items import (
    EvaluationFaultError,
    Item,
    Result,
    calls,
    clean,
    require_sound,
    result_of,
    scope_of,
    stored_key,
)
from runner.extras.trainers.client.queries import QUERIES

#: How long an outage of the database is waited out before a caller hears of it.
PATIENCE_S: Final = 300.0
#: The pauses between two looks for results: short while some come, longer while none do.
_LOOK_S: Final = 0.05
_LOOK_MAX_S: Final = 1.0
#: How often items that another batch has are asked for by key.
_FOREIGN_LOOKS: Final = 5
#: A full quota is tried again after this.
_QUOTA_PAUSE_S: Final = 2.0
_QUOTA_FULL: Final = "KR052"
_NO_BATCH: Final = "KR053"
_KEYS_AT_ONCE: Final = 500

#: Called with how many items of a call are over and how many it has.
OnProgress = Callable[[int, int], object]


class AsyncClient:
    """Evaluates items. Use it with `async with`, in one event loop; any number of its coroutines may run at once.

    Used elsewhere it raises `ClientHomeError` at once (`home`).

    Args:
        dsn: the database; its login needs the role `runner_frontend`.
        gpu_type: where to evaluate, e.g. `H100`.
        batch: the name of the batch; a random one by default. Give one to see its progress elsewhere.
        user_id: whose turn and quota it is; the login's by default.
        settings: of every item that has none of its own.
        outstanding: how many items wait or run at most.
        group_size: how many candidates of one reference share a job, 1 to 16.
        reuse: answer from the store what was evaluated under other keys.
        priority: higher goes first.
        keep: how long results stay after the last one.
        patience_s: how long an outage of the database is waited out.
    """

    def __init__(
        self,
        dsn: str,
        *,
        gpu_type: str,
        batch: str | None = None,
        user_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
        outstanding: int = 512,
        group_size: int = 8,
        reuse: bool = False,
        priority: int = 0,
        keep: timedelta | None = None,
        expires_at: datetime | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        if outstanding < 1:
            raise ValueError(f"outstanding is {outstanding}, expected 1 or more")
        self.batch = batch or f"client-{uuid.uuid4()}"
        self._user_id = user_id
        self.scope = scope_of(gpu_type, settings or {})
        self._call = {
            "gpu_type": gpu_type,
            "batch": self.batch,
            "user_id": user_id,
            "settings": json.dumps(clean(settings or {})),
            "priority": priority,
            "group_size": group_size,
            "reuse": reuse,
            "expires_at": expires_at,
            "keep": keep,
        }
        self._group_size = group_size
        self._portion = min(outstanding, max(group_size, outstanding // 4))
        self._outstanding = outstanding
        self._store = AsyncStore(
            dsn, queries=QUERIES, connections=2, name="kernel-runner client", patience_s=patience_s
        )
        #: Items that are submitted and have no result here, with all who wait for each.
        self._waiting: dict[str, list[asyncio.Future[Result]]] = {}
        #: Those of them that another batch has.
        self._foreign: set[str] = set()
        self._room = asyncio.Condition()
        self._after: int | None = None
        self._batch_id: int | None = None
        self._collector: asyncio.Task[None] | None = None
        self._submitted = asyncio.Event()
        self.home = Home()

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        self.home.refuse_copy()

    async def __aenter__(self) -> Self:
        self.home.open()
        await self._store.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Submitted items go on, and their keys find them again.

        Calls that still wait raise `ClientHomeError`. A fork of the client's process closes nothing.

        Raises:
            ClientHomeError: this is another event loop.
        """
        if self.home.is_here:
            self.home.require_inside()
            self.home.end()
            await self.shut()

    async def shut(self) -> None:
        """Close the connections of a client whose home has ended."""
        if self._collector is not None:
            self._collector.cancel()
            with suppress(asyncio.CancelledError):
                await self._collector
        await self._fail(self.home.closed_error())
        await self._store.close()

    async def evaluate(self, items: Iterable[Item], *, on_progress: OnProgress | None = None) -> list[Result]:
        """The results of items, in their order. A fault of ours is a result with `is_fault`, never a missing one.

        Raises:
            DatabaseUnavailableError: an outage lasts longer than `patience_s`; the same call may be made again.
            SubmissionError: the database refused the call, or two different items have one key.
        """
        asked = list(items)
        by_key: dict[str, Result] = {}
        async for result in self.stream(asked, on_progress=on_progress):
            by_key[result.key] = result
        return [by_key[item.key] for item in asked]

    async def rewards(self, items: Iterable[Item], name: str, *, strict: bool = False) -> list[float | None]:
        """The rewards of items, in their order. None: mask this sample, its candidate is not to blame.

        With `strict` that is an error.

        Raises:
            EvaluationFaultError: with `strict`, some item has no reward.
            NotFoundError: there is no such reward.
            DatabaseUnavailableError, SubmissionError: as `evaluate`.
        """
        results = await self.evaluate(items)
        return [result.reward_or_raise(name) if strict else result.reward(name) for result in results]

    async def stream(self, items: Iterable[Item], *, on_progress: OnProgress | None = None) -> AsyncIterator[Result]:
        """The results of items as they come, one for each key. Items are taken from the iterable as there is room.

        Raises: as `evaluate`.
        """
        self.home.require_inside()
        total = len(items) if isinstance(items, Sequence) else 0
        ready: asyncio.Queue[asyncio.Future[Result]] = asyncio.Queue()
        sending = asyncio.create_task(self._send(items, ready))
        done = 0
        try:
            while not sending.done() or done < sending.result():
                getting = asyncio.create_task(ready.get())
                running = {getting} if sending.done() else {getting, sending}
                try:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    getting.cancel()
                if not getting.done():
                    # Everything is sent, or could not be: that is looked at again.
                    continue
                done += 1
                if on_progress is not None:
                    on_progress(done, max(total, done))
                yield getting.result().result()
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await sending

    async def progress(self) -> tuple[int, int]:
        """How many items of the batch are over, and how many it has."""
        (row,) = await self._all("batch_progress", batch=self.batch, user_id=self._user_id)
        return row["finished"], row["items"]

    async def look(self, keys: Sequence[str]) -> dict[str, Result | None]:
        """The results of these keys so far; None: no result yet. A key that was never submitted is missing."""
        by_key: dict[str, Result | None] = {}
        for row in await self._rows_of([stored_key(key, self.scope) for key in keys]):
            key = row["key"].removesuffix(self.scope)
            by_key[key] = None if row["result"] is None else result_of({**row, "key": key})
        return by_key

    async def cancel(self) -> int:
        """Cancel the batch; returns how many items that ended at once. Those that run end within seconds."""
        ended = 0
        while True:
            (row,) = await self._all("cancel_batch", batch=self.batch, user_id=self._user_id)
            ended += int(row["ended"])
            if not row["left_over"]:
                return ended

    # -- inside

    async def _all(self, name: str, **values: object) -> Sequence[Mapping[str, Any]]:
        """Every row of a statement, for as long as the client is open."""
        self.home.require_inside()
        try:
            return await self._store.all(name, **values)
        except DatabaseUnavailableError:
            # Closed meanwhile: that is no outage.
            self.home.require_inside()
            raise

    async def _batch(self) -> Mapping[str, Any] | None:
        """Number and progress of the batch; None: nothing has been submitted to it."""
        try:
            (row,) = await self._all("batch_progress", batch=self.batch, user_id=self._user_id)
        except RefusedError as error:
            if error.code != _NO_BATCH:
                raise
            return None
        return row

    async def _send(self, items: Iterable[Item], ready: asyncio.Queue[asyncio.Future[Result]]) -> int:
        """Submit items as there is room; how many different ones there were."""
        seen: dict[str, str] = {}
        portion: list[Item] = []
        for item in items:
            if item.key in seen:
                if seen[item.key] != item.digest:
                    raise SubmissionError(f"{item.key!r} is the key of two items; give each a key of its own")
                continue
            require_sound(item.key)
            seen[item.key] = item.digest
            portion.append(item)
            if len(portion) >= self._portion:
                await self._submit(portion, ready)
                portion = []
        if portion:
            await self._submit(portion, ready)
        return len(seen)

    async def _submit(self, portion: Sequence[Item], ready: asyncio.Queue[asyncio.Future[Result]]) -> None:
        for call in calls(portion):
            own = await self._register([stored_key(item.key, self.scope) for item in call], ready)
            try:
                await self._begin()
                sent = [{**item.as_json(), "key": stored_key(item.key, self.scope)} for item in call]
                rows = await self._submit_patiently(sent)
                await self._note_foreign(rows)
                await self._fetch([row["key"] for row in rows if row["state"] in ("done", "cancelled")])
            except BaseException:
                await self._forget(own)
                raise

    async def _register(
        self, keys: Sequence[str], ready: asyncio.Queue[asyncio.Future[Result]]
    ) -> Mapping[str, asyncio.Future[Result]]:
        """Wait for room, then for these keys: what is found of each goes into the queue."""
        loop = asyncio.get_running_loop()

        def over(future: asyncio.Future[Result]) -> None:
            if not future.cancelled():
                # Asked, so that nothing is said of an error that no caller waits for any more.
                future.exception()
                ready.put_nowait(future)

        own: dict[str, asyncio.Future[Result]] = {}
        async with self._room:
            await self._room.wait_for(lambda: not self._waiting or len(self._waiting) + len(keys) <= self._outstanding)
            for key in keys:
                own[key] = loop.create_future()
                own[key].add_done_callback(over)
                self._waiting.setdefault(key, []).append(own[key])
        return own

    async def _forget(self, own: Mapping[str, asyncio.Future[Result]]) -> None:
        """Wait for these no longer; others may wait for the same keys."""
        async with self._room:
            for key, future in own.items():
                future.cancel()
                left = [one for one in self._waiting.pop(key, ()) if one is not future]
                if left:
                    self._waiting[key] = left
            self._room.notify_all()

    async def _note_foreign(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Remember which of these items another batch has: its results do not come with this batch's."""
        if self._batch_id is None:
            row = await self._batch()
            # Without a batch every item so far is another one's.
            self._batch_id = None if row is None else row["batch_id"]
        self._foreign.update(row["key"] for row in rows if row["batch_id"] != self._batch_id)

    async def _submit_patiently(self, items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Submit items: in parts where a quota has no room for all, and as there is room for a group."""
        rows: list[Mapping[str, Any]] = []
        size = len(items)
        while items:
            try:
                rows += await self._all("submit_batch", items=json.dumps(items[:size]), **self._call)
            except RefusedError as error:
                if error.code != _QUOTA_FULL:
                    raise
                if size > self._group_size:
                    size = max(size // 2, self._group_size)
                    continue
                batch = await self._batch()
                if batch is None or batch["finished"] == batch["items"]:
                    # No result of ours will make room for a group.
                    size = max(size // 2, 1)
                await asyncio.sleep(_QUOTA_PAUSE_S)
            else:
                items = items[size:]
                self._submitted.set()
        return rows

    async def _begin(self) -> None:
        """Before the first item: where the batch's results are now, and who collects those that come."""
        if self._after is None:
            row = await self._batch()
            if self._after is None:
                # Else another call was first: results of its items may have come since.
                self._after = 0 if row is None else row["finished"]
        if self._collector is None or self._collector.done():
            self._collector = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        """Fetch results as they come while anything is waited for; an outage that lasts reaches all who wait."""
        pause_s = _LOOK_S
        looks = 0
        while True:
            if not self._waiting:
                self._submitted.clear()
                await self._submitted.wait()
                pause_s = _LOOK_S
            try:
                came = await self._next_page()
                looks += 1
                if looks % _FOREIGN_LOOKS == 0 and self._foreign:
                    came += await self._fetch(sorted(self._foreign))
            except Exception as error:  # noqa: BLE001 - told to all who wait
                await self._fail(error)
                continue
            pause_s = _LOOK_S if came else min(_LOOK_MAX_S, pause_s * 1.5)
            await asyncio.sleep(pause_s)

    async def _next_page(self) -> int:
        try:
            rows = await self._all("batch_results", batch=self.batch, after=self._after, user_id=self._user_id)
        except RefusedError as error:
            # Not submitted yet, or every item is of another batch.
            if error.code != _NO_BATCH:
                raise
            return 0
        for row in rows:
            self._after = row["seq"]
        await self._settle(rows)
        return len(rows)

    async def _fetch(self, keys: Sequence[str]) -> int:
        """Fetch the results of these keys, as far as there are any."""
        over = [row for row in await self._rows_of(keys) if row["result"] is not None]
        await self._settle(over)
        return len(over)

    async def _rows_of(self, keys: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """The items of these stored keys that are known."""
        rows: list[Mapping[str, Any]] = []
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            part = list(keys[first : first + _KEYS_AT_ONCE])
            rows += await self._all("results_of_keys", keys=part, user_id=self._user_id)
        return rows

    async def _settle(self, rows: Sequence[Mapping[str, Any]]) -> None:
        async with self._room:
            for row in rows:
                key = row["key"]
                result = result_of({**row, "key": key.removesuffix(self.scope)})
                self._foreign.discard(key)
                for future in self._waiting.pop(key, ()):
                    if not future.done():
                        future.set_result(result)
            self._room.notify_all()

    async def _fail(self, error: Exception) -> None:
        async with self._room:
            for key in list(self._waiting):
                for future in self._waiting.pop(key):
                    if not future.done():
                        future.set_exception(error)
            self._foreign.clear()
            self._room.notify_all()


__all__ = ["PATIENCE_S", "AsyncClient", "EvaluationFaultError", "OnProgress"]
