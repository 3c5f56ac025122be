"""What every route has at hand, as `request.app.state.gateway`: store, settings, limits, metrics, watchers."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.config import SiteConfig
from runner.extras.gateway.limits import Limits
from runner.extras.gateway.metrics import Metrics
from runner.extras.jsonl import without_infinite
from runner.extras.store import AsyncStore

if TYPE_CHECKING:
    from runner.extras.gateway.live import Live
    from runner.extras.gateway.watcher import Watcher

_T = TypeVar("_T")
_P = ParamSpec("_P")
#: How long the state of a queue, the tasks of leaderboards, and the drawings of a leaderboard, count as fresh.
QUEUE_S: Final = 1.0
TASKS_S: Final = 5.0
DRAWING_S: Final = 30.0
#: What is made of more than this is made in a thread: all requests and streams share the event loop.
_LARGE_BYTES: Final = 256 << 10
#: The longest body that has no file: what is parsed on the event loop is small.
PLAIN_BYTES: Final = 64 << 10
_CACHED: Final = 1000


class Refusal(Exception):
    """An answer that is no success: status, `detail`, and headers if there are any.

    `twice`: as `message`, too, as KernelBot calls the sentence on some routes; clients read `detail`.
    """

    def __init__(self, status: int, detail: object, *, retry_after_s: float | None = None, twice: bool = False) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.body = {"detail": detail, **({"message": detail} if twice else {})}
        self.headers: dict[str, str] = {}
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))


class TimedCache:
    """Answers that are used again for some seconds; at most a thousand."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: dict[object, tuple[float, object]] = {}

    def get(self, key: object) -> object | None:
        """A value that is fresh; None: there is none."""
        at, value = self._values.get(key, (-math.inf, None))
        return value if at > time.monotonic() - self._seconds else None

    async def fresh(self, key: object, make: Callable[[], Awaitable[_T]]) -> _T:
        """A value that is fresh, or that is made now."""
        at, value = self._values.get(key, (-math.inf, None))
        if at <= time.monotonic() - self._seconds:
            value = await make()
            self.put(key, value)
        return cast("_T", value)

    def put(self, key: object, value: object) -> None:
        """Keep a value from now on."""
        if len(self._values) >= _CACHED:
            self._values.clear()
        self._values[key] = (time.monotonic(), value)


@dataclass(frozen=True, kw_only=True)
class Provider:
    """A provider of logins (see `oauth`)."""

    name: str
    title: str
    client_id: str
    client_secret: str = field(repr=False)
    authorize_url: str
    token_url: str
    person_url: str
    scope: str
    #: The key of the name in what the provider tells of a person.
    name_key: str


@dataclass(frozen=True, kw_only=True)
class AppState:
    """One process of the gateway."""

    config: SiteConfig
    store: AsyncStore
    limits: Limits
    metrics: Metrics
    watcher: Watcher
    live: Live
    #: None: no admin route is open.
    admin_token: str | None = field(repr=False)
    #: By whom people may log in, by name.
    providers: Mapping[str, Provider] = field(default_factory=dict)
    #: What addresses of waiting logins are stored under; nobody can tell them apart once the process has ended.
    origin_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    #: One board is made at a time.
    publishing: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: Tasks are read by one request at a time; so are records, and one picture and one difference is made at a time.
    reading_tasks: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading_records: asyncio.Lock = field(default_factory=asyncio.Lock)
    drawing: asyncio.Lock = field(default_factory=asyncio.Lock)
    comparing: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: The state of queues by GPU type, all tasks, and the drawings of leaderboards.
    queues: TimedCache = field(default_factory=lambda: TimedCache(QUEUE_S))
    tasks: TimedCache = field(default_factory=lambda: TimedCache(TASKS_S))
    drawings: TimedCache = field(default_factory=lambda: TimedCache(DRAWING_S))


def app_state(request: Request) -> AppState:
    """The process that answers this request."""
    state = request.app.state.gateway
    if not isinstance(state, AppState):
        raise TypeError(f"the application has no state of the gateway, found {state!r}")
    return state


class Ascii(Response):
    """JSON in ASCII alone: clients may decode a stream piece by piece."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """The bytes of the body."""
        return dumps(content).encode("ascii")


def kept(
    make: Callable[Concatenate[AppState, _P], Awaitable[_T]],
) -> Callable[Concatenate[AppState, _P], Awaitable[_T]]:
    """Use what a function has read for a drawing again for half a minute, for the same arguments."""

    @functools.wraps(make)
    async def drawing(current: AppState, /, *of: _P.args, **named: _P.kwargs) -> _T:
        return await current.drawings.fresh((make, *of, *named.items()), lambda: make(current, *of, **named))

    return drawing


async def off_loop(value: object, work: Callable[[], _T]) -> _T:
    """What `work` makes of a value; of a large one in a thread."""
    return await asyncio.to_thread(work) if _is_large(value) else work()


def _is_large(value: object) -> bool:
    size = 0
    waiting = [value]
    while waiting and size <= _LARGE_BYTES:
        part = waiting.pop()
        if isinstance(part, str | bytes | memoryview):
            size += len(part)
        elif isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
        size += 8
    return size > _LARGE_BYTES


def dumps(value: object) -> str:
    """A value as one line of ASCII; a number that JSON has no word for becomes null."""
    try:
        return _json(value)
    except ValueError:
        return _json(without_infinite(value))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=str, allow_nan=False)


def is_public_https(current: AppState) -> bool:
    """Whether browsers reach this service with encryption, as its configuration says: a proxy may end that."""
    return (current.config.gateway_public_url or "").startswith("https://")


def cookie_prefix(*, secure: bool) -> str:
    """How a cookie's name begins: with encryption, so that no neighbour's page can set it."""
    return "__Host-" if secure else ""


def moment(value: datetime | None) -> str | None:
    """A time in UTC that ends in `Z`."""
    return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def problem(kind: str, place: str, message: str, given: object) -> dict[str, Any]:
    """One entry of the `detail` of a 422."""
    name, _, key = place.partition(".")
    return {"type": kind, "loc": [name, key] if key else [name], "msg": message, "input": given}


def path_number(request: Request, name: str) -> int:
    """A number in the path.

    Raises:
        Refusal: 422, it is none.
    """
    text = str(request.path_params[name])
    return _number(text, f"path.{name}")


def query_number(request: Request, name: str, default: int, *, low: int, high: int, status: int = 400) -> int:
    """A number in the query string, within bounds.

    Raises:
        Refusal: 422, it is none; `status`, it is out of bounds.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    number = _number(text, f"query.{name}")
    if not low <= number <= high:
        raise Refusal(status, f"{name} must be between {low} and {high}")
    return number


def flag(request: Request, name: str) -> bool:
    """Whether the query string switches something on."""
    return request.query_params.get(name, "false").lower() in ("1", "true", "yes", "on")


def field_number(fields: Mapping[str, str], name: str, *, low: int, high: int) -> int | None:
    """A number in a form, within bounds; None: it is not there.

    Raises:
        Refusal: 422.
    """
    text = fields.get(name) or None
    if text is None:
        return None
    number = _number(text, f"body.{name}")
    if not low <= number <= high:
        message = f"Input should be from {low} to {high}"
        raise Refusal(422, [problem("out_of_range", f"body.{name}", message, text[:100])])
    return number


def _number(text: str, place: str) -> int:
    bare = text.removeprefix("-")
    if not (bare.isascii() and bare.isdigit()) or len(bare) > 18:
        message = "Input should be a valid integer, unable to parse string as an integer"
        raise Refusal(422, [problem("int_parsing", place, message, text[:100])])
    return int(text)


def bounded(body: bytes) -> bytes:
    """A body without a file.

    Raises:
        Refusal: 413, it is too large.
    """
    if len(body) > PLAIN_BYTES:
        raise Refusal(413, f"The body is too large: at most {PLAIN_BYTES} bytes")
    return body


async def json_body(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries; an empty body is an empty object.

    Raises:
        Refusal: 413, it is too large; 422, it is none.
    """
    body = bounded(await request.body())
    if not body:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(422, [problem("json_invalid", "body", "JSON decode error", None)]) from None
    if not isinstance(value, dict):
        raise Refusal(422, [problem("dict_type", "body", "Input should be a valid dictionary", None)])
    return value
