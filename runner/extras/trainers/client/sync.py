"""The client for programs without an event loop: the same, with a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, NoReturn, Self, SupportsIndex, TypeVar

from runner.extras.trainers.client.aio import AsyncClient, OnProgress
from runner.extras.trainers.client.items import Item, Result

_T = TypeVar("_T")
#: How often a progress line is written at most.
_LINE_S: Final = 0.5


class Client:
    """Evaluates items, for any number of threads of one process. Takes what `AsyncClient` takes; use it with `with`.

    Used in a fork, or after its block, it raises `ClientHomeError` at once (`home`).
    """

    def __init__(self, dsn: str, **settings: Any) -> None:  # noqa: ANN401 - the settings of AsyncClient
        self._client = AsyncClient(dsn, **settings)
        self._home = self._client.home
        #: The home does not end between a call's check and its start. A handler of a signal may call, too.
        self._starting = threading.RLock()
        opened: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._serve, args=(opened,), name="kernel-runner client", daemon=True)
        self._thread.start()
        self._loop = opened.result()

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        self._home.refuse_copy()

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
        if not self._home.is_here or sys.is_finalizing():
            return
        self._home.require_outside()
        with self._starting:
            self._home.end()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def evaluate(
        self, items: Iterable[Item], *, on_progress: OnProgress | None = None, progress: bool = False
    ) -> list[Result]:
        """As `AsyncClient.evaluate`; `progress` writes a line to stderr now and then."""
        return self._run(self._client.evaluate, items, on_progress=_line() if progress else on_progress)

    def rewards(self, items: Iterable[Item], name: str, *, strict: bool = False) -> list[float | None]:
        """As `AsyncClient.rewards`."""
        return self._run(self._client.rewards, items, name, strict=strict)

    def stream(self, items: Iterable[Item], *, on_progress: OnProgress | None = None) -> Iterator[Result]:
        """As `AsyncClient.stream`; it begins at once."""
        results: queue.SimpleQueue[Result | BaseException | None] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async for result in self._client.stream(items, on_progress=on_progress):
                    results.put(result)
            except BaseException as error:
                # Raised where the results are taken; also a cancellation, after which nothing comes any more.
                results.put(error)
                raise
            else:
                results.put(None)

        return self._taken(results, self._start(pump))

    def progress(self) -> tuple[int, int]:
        """As `AsyncClient.progress`."""
        return self._run(self._client.progress)

    def cancel(self) -> int:
        """As `AsyncClient.cancel`."""
        return self._run(self._client.cancel)

    def _start(self, function: Callable[..., Coroutine[Any, Any, _T]], *given: Any, **named: Any) -> Future[_T]:  # noqa: ANN401 - handed through
        self._home.require_outside()
        with self._starting:
            # Again: it may have ended meanwhile.
            self._home.require_outside()
            return asyncio.run_coroutine_threadsafe(function(*given, **named), self._loop)

    def _run(self, function: Callable[..., Coroutine[Any, Any, _T]], *given: Any, **named: Any) -> _T:  # noqa: ANN401 - as above
        future = self._start(function, *given, **named)
        try:
            return future.result()
        except BaseException as error:
            # Also an interrupt from the keyboard.
            future.cancel()
            if isinstance(error, CancelledError):
                self._home.require_outside()
            raise

    def _taken(
        self, results: queue.SimpleQueue[Result | BaseException | None], running: Future[None]
    ) -> Iterator[Result]:
        """Yield results; cancel the coroutine when the reader stops."""
        try:
            while True:
                if results.empty():
                    self._home.require_outside()
                result = results.get()
                if result is None:
                    return
                if isinstance(result, asyncio.CancelledError):
                    self._home.require_outside()
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            if self._home.is_here:
                running.cancel()

    def _serve(self, opened: Future[asyncio.AbstractEventLoop]) -> None:
        """Run the loop until the client is closed, or a callback raises what ends a thread: no call waits then."""
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            try:
                runner.run(self._client.__aenter__())
            except BaseException as error:  # noqa: BLE001 - raised where the client is made
                opened.set_exception(error)
                return
            loop = runner.get_loop()
            opened.set_result(loop)
            try:
                loop.run_forever()
            finally:
                if self._home.is_here:
                    with self._starting:
                        self._home.end()
                runner.run(self._client.shut())


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
