"""The client for programs without an event loop: the same, with a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from runner.client.aio import AsyncClient, OnProgress
from runner.client.items import Item, Result

_T = TypeVar("_T")
#: How often a progress line is written at most.
_LINE_S: Final = 0.5


class Client:
    """Evaluates items, for any number of threads. Takes what `AsyncClient` takes; use it with `with`."""

    def __init__(self, dsn: str, **settings: Any) -> None:  # noqa: ANN401 - the settings of AsyncClient
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kernel-runner client", daemon=True)
        self._thread.start()
        try:
            self._client: AsyncClient = self._run(_made(dsn, settings))
        except BaseException:
            self._stop()
            raise

    @property
    def batch(self) -> str:
        """The name of the batch."""
        return self._client.batch

    @property
    def scope(self) -> str:
        """The part of keys made from content that names the settings."""
        return self._client.scope

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """As `AsyncClient.close`."""
        if self._thread.is_alive():
            try:
                self._run(self._client.close())
            finally:
                self._stop()

    def evaluate(
        self, items: Iterable[Item], *, on_progress: OnProgress | None = None, progress: bool = False
    ) -> list[Result]:
        """As `AsyncClient.evaluate`; `progress` writes a line to stderr now and then."""
        return self._run(self._client.evaluate(items, on_progress=_line() if progress else on_progress))

    def rewards(self, items: Iterable[Item], name: str, *, strict: bool = False) -> list[float | None]:
        """As `AsyncClient.rewards`."""
        return self._run(self._client.rewards(items, name, strict=strict))

    def stream(self, items: Iterable[Item], *, on_progress: OnProgress | None = None) -> Iterator[Result]:
        """As `AsyncClient.stream`; it begins at once."""
        results: queue.SimpleQueue[Result | BaseException | None] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async for result in self._client.stream(items, on_progress=on_progress):
                    results.put(result)
            except Exception as error:  # noqa: BLE001 - raised where the results are taken
                results.put(error)
            else:
                results.put(None)

        return _taken(results, asyncio.run_coroutine_threadsafe(pump(), self._loop))

    def progress(self) -> tuple[int, int]:
        """As `AsyncClient.progress`."""
        return self._run(self._client.progress())

    def cancel(self) -> int:
        """As `AsyncClient.cancel`."""
        return self._run(self._client.cancel())

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Also an interrupt from the keyboard.
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _taken(results: queue.SimpleQueue[Result | BaseException | None], running: Future[None]) -> Iterator[Result]:
    """What a coroutine puts into a queue; it ends with those who take."""
    try:
        while (result := results.get()) is not None:
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        running.cancel()


async def _made(dsn: str, settings: dict[str, Any]) -> AsyncClient:
    return await AsyncClient(dsn, **settings).__aenter__()


def _line() -> OnProgress:
    """Writes how far a call is to stderr, at most twice a second."""
    begun_s = time.monotonic()
    last_s = 0.0

    def write(done: int, total: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s < _LINE_S and done < total:
            return
        last_s = now_s
        rate = done / max(now_s - begun_s, 1e-9)
        sys.stderr.write(f"\r{done} of {total} evaluated, {rate:.1f}/s" + ("\n" if done == total else ""))
        sys.stderr.flush()

    return write
