"""Bounds of what clients may do: requests per user and address, bodies, and how long a body may take.

Counts are kept in memory, for each process on its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette import routing
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.extras.gateway.metrics import Metrics

#: A source file, and the frame around it.
BODY_BYTES: Final = 1_000_000 + 64 * 1024
#: How long a client may take to send a body.
BODY_S: Final = 60.0
#: How many files are read at the same time, and how many of one user are on their way.
BODIES: Final = 64
UPLOADS: Final = 8
#: How many of one user's results, files and codes are read and sent at the same time: each may have 24 MB.
RESULTS: Final = 4
#: An answer is handed on in pieces of this size, so that what a client has not read yet counts as not sent.
_PIECE_BYTES: Final = 64 * 1024
#: How many keys a limit remembers.
_KEYS: Final = 20_000
_STREAM: Final = b"text/event-stream"
_HELD: Final = "kernel_runner.held"
_PATH_BYTES: Final = 4096
_QUERY_BYTES: Final = 8192


class Bucket:
    """At most `per_minute` events of a key, in bursts of that many; the keys used last are remembered."""

    def __init__(self, per_minute: float) -> None:
        self._most = max(1.0, per_minute)
        self._rate = self._most / 60.0
        self._keys: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Count one event. 0: it is admitted; else after how many seconds it would be."""
        now = time.monotonic()
        left, at = self._keys.pop(key, (self._most, now))
        left = min(self._most, left + (now - at) * self._rate)
        admitted = left >= 1
        self._keys[key] = (left - admitted, now)
        if len(self._keys) > _KEYS:
            self._keys.popitem(last=False)
        return 0.0 if admitted else (1 - left) / self._rate


class Streams:
    """Open streams: at most `most`, and `each` of one key."""

    def __init__(self, most: int, each: int) -> None:
        self._most = most
        self._each = max(1, each)
        self._open: dict[str, int] = {}

    def open(self, key: str) -> bool:
        """Count a stream; False: there are too many. Each that was counted is to be closed."""
        mine = self._open.get(key, 0)
        if sum(self._open.values()) >= self._most or mine >= self._each:
            return False
        self._open[key] = mine + 1
        return True

    def close(self, key: str) -> None:
        """The end of a stream that was counted."""
        left = self._open.get(key, 0) - 1
        if left > 0:
            self._open[key] = left
        else:
            self._open.pop(key, None)


def hold(scope: MutableMapping[str, Any], streams: Streams, key: str) -> bool:
    """Count something of a key until this request's answer has been sent; False: there are too many."""
    held = scope[_HELD]
    if (streams, key) in held:
        return True
    if not streams.open(key):
        return False
    held.append((streams, key))
    return True


class Limits:
    """The limits of one process."""

    def __init__(self, *, per_minute: int, streams: int) -> None:
        self.user = Bucket(per_minute)
        self.address = Bucket(per_minute / 2)
        #: Credentials that were wrong, and new logins.
        self.attempt = Bucket(per_minute / 50)
        self.admin = Bucket(per_minute)
        self.bodies = asyncio.Semaphore(BODIES)
        self.uploads = Streams(_KEYS, UPLOADS)
        self.results = Streams(_KEYS, RESULTS)
        #: Of submissions, by user.
        self.streams = Streams(streams, streams // 10)
        #: Of live pages, by address: a hall may share one.
        self.watchers = Streams(streams, streams // 2)


class BodyTooLarge(Exception):
    """The body is longer than any that is of use."""


class Edge:
    """The outermost part: paths in one form, bounded bodies, the count of what was answered, and the end of `hold`."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0
        streamed = False

        async def answer(message: Message) -> None:
            nonlocal status, streamed
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = dict(message["headers"])
                streamed = headers.get(b"content-type", b"").startswith(_STREAM)
                more = [(b"x-content-type-options", b"nosniff")]
                if b"cache-control" not in headers:
                    # What tells users apart are headers that no cache between knows.
                    more.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *more]}
            whole, sent = message.get("body", b""), 0
            while len(whole) - sent > _PIECE_BYTES:
                await send({**message, "body": whole[sent : sent + _PIECE_BYTES], "more_body": True})
                sent += _PIECE_BYTES
            await send({**message, "body": whole[sent:]} if sent else message)

        path = scope["path"]
        if len(path) > _PATH_BYTES or len(scope.get("query_string", b"")) > _QUERY_BYTES:
            await _say(answer, 414, b'{"detail":"The address is too long"}')
        elif _announced(scope) > BODY_BYTES:
            await _say(answer, 413, b'{"detail":"The body is too large: at most 1000000 bytes of source"}')
        else:
            # A base address that ends in a slash makes two of them. A name may have one, which is written as %2F.
            parts = scope["raw_path"].decode("ascii", "replace").split("/")
            plain = "/" + "/".join(quote(unquote(part), safe="") for part in parts if part)
            held: list[tuple[Streams, str]] = []
            inner = {**scope, "path": plain, "raw_path": plain.encode(), _HELD: held}
            try:
                await self._app(inner, _bounded(receive), answer)
            finally:
                for streams, key in held:
                    streams.close(key)
                # A client that went away before the answer counts as 499.
                self._metrics.answered(status or 499, None if streamed else time.monotonic() - began)
            return
        self._metrics.answered(status, time.monotonic() - began)


class Route(routing.Route):
    """A route whose names may hold anything: the path stays quoted until it has been divided."""

    def matches(self, scope: Scope) -> tuple[routing.Match, Scope]:
        """Whether it is of this path, and the names in it."""
        match, child = super().matches(scope)
        if "path_params" in child:
            child["path_params"] = {name: unquote(value) for name, value in child["path_params"].items()}
        return match, child


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 19:
            return int(value)
    return 0


def _bounded(receive: Receive) -> Receive:
    taken = 0
    until: float | None = None
    over = False

    async def bounded() -> Message:
        nonlocal taken, until, over
        if over:
            return await receive()
        until = until or time.monotonic() + BODY_S
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        taken += len(message.get("body", b""))
        if taken > BODY_BYTES:
            raise BodyTooLarge
        over = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return bounded


async def _say(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
