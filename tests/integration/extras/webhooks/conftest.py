"""A target that listens on a free port, and senders with a login of their role."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import pytest

from runner.extras.config import WebhookSecret
from runner.extras.store import AsyncStore
from runner.extras.webhooks import http
from runner.extras.webhooks.queries import QUERIES
from runner.extras.webhooks.sender import Sender
from tests.integration.extras.gateway.conftest import login_of
from tests.integration.store.conftest import Bench, Db, bench, db, finish, one, store
from tests.support.serving import serving
from tests.support.waiting import PATIENCE_S

__all__ = ["bench", "db", "finish", "store"]

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="


@dataclass(frozen=True, kw_only=True)
class Message:
    """What a target was sent."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """The header webhook-id."""
        return self.headers["webhook-id"]

    @property
    def document(self) -> Any:  # noqa: ANN401 - JSON
        """The body."""
        return json.loads(self.body)


@dataclass(kw_only=True)
class Target:
    """A listener; it notes what it is sent, and answers by path."""

    base: str = ""
    messages: list[Message] = field(default_factory=list)
    #: Status and headers by path; else 204. None: the connection ends without an answer.
    answers: dict[str, tuple[int, Mapping[str, str]] | None] = field(default_factory=dict)
    #: Status by what a message says, whatever its path.
    refuses: dict[str, int] = field(default_factory=dict)
    #: Paths that do not answer until it is set.
    held: dict[str, threading.Event] = field(default_factory=dict)

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"{self.base}{path}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.base.rpartition(":")[2])

    def at(self, path: str) -> list[Message]:
        """What a path was sent."""
        return [message for message in self.messages if message.path == path]

    def take(self, message: Message) -> tuple[int, Mapping[str, str]] | None:
        """Note a message, and answer it."""
        self.messages.append(message)
        if (held := self.held.get(message.path)) is not None:
            held.wait(PATIENCE_S)
        refused = next((status for text, status in self.refuses.items() if text.encode() in message.body), None)
        return (refused, {}) if refused is not None else self.answers.get(message.path, (204, {}))


@pytest.fixture
def target() -> Iterator[Target]:
    """A listener on a free port."""
    own = Target()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            headers = {key.lower(): value for key, value in self.headers.items()}
            answer = own.take(Message(path=self.path, headers=headers, body=self.rfile.read(size)))
            if answer is None:
                self.close_connection = True
                return
            with suppress(OSError):
                self.send_response(answer[0])
                for key, value in answer[1].items():
                    self.send_header(key, value)
                self.end_headers()

    with serving(Handler) as own.base:
        yield own
        for event in own.held.values():
            event.set()


@dataclass(kw_only=True)
class Play:
    """Senders of one database that tell a target."""

    url: str
    bench: Bench
    db: Db
    target: Target

    def configure(self, **targets: tuple[str, ...]) -> None:
        """Targets of the configuration: JSON at the path of their names, with these events."""
        given = [{"name": name, "format": "json", "events": list(events)} for name, events in targets.items()]
        self.db.execute("SELECT runner.set_webhooks(%s::jsonb)", (json.dumps(given),))
        self.names = tuple(targets)

    names: tuple[str, ...] = ()
    networks: str = ""
    public_url: str | None = None

    @asynccontextmanager
    async def sender(self) -> AsyncIterator[Sender]:
        """One that is like a process of its own."""
        store = AsyncStore(self.url, queries=QUERIES, connections=2, name="kernel-runner webhooks")
        await store.open()
        async with http.client() as over:
            secrets = {name: WebhookSecret(url=self.target.url(f"/{name}"), secret=SECRET) for name in self.names}
            yield Sender(store, over, secrets=secrets, private_networks=self.networks, public_url=self.public_url)
        await store.close()

    def tell(self) -> None:
        """Derive, and tell all that may be told now."""

        async def once() -> None:
            async with self.sender() as sender:
                await sender.look()
                await sender.finish()

        asyncio.run(once())

    def die_while_telling(self, path: str) -> None:
        """A sender is gone after a target has had a message, before its answer has come; the lease has passed."""
        held = self.target.held[path] = threading.Event()
        before = len(self.target.at(path))

        async def once() -> None:
            async with self.sender() as sender:
                await sender.look()
                while sender._tasks and len(self.target.at(path)) == before:
                    await asyncio.wait(set(sender._tasks), timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
                for task in sender._tasks:
                    task.cancel()
                await asyncio.gather(*sender._tasks, return_exceptions=True)

        asyncio.run(once())
        held.set()
        del self.target.held[path]
        self.later("1 hour")

    def later(self, span: str) -> None:
        """Let time pass for targets and what waits for them."""
        self.db.execute(
            "UPDATE runner.webhook SET retry_at = retry_at - %(span)s::interval,"
            " failing_since = failing_since - %(span)s::interval, sending_until = sending_until - %(span)s::interval",
            {"span": span},
        )
        self.db.execute("UPDATE runner.webhook_event SET at = at - %s::interval", (span,))

    def state(self, name: str) -> dict[str, Any]:
        """How a target stands."""
        return one(self.db, "SELECT * FROM runner.webhook_state WHERE name = %s", name)


@pytest.fixture
def play(database_url: str, bench: Bench, db: Db, target: Target) -> Play:
    """Senders whose login has their role and no other, and what they tell of."""
    url = login_of(database_url, "runner_test_webhook", "runner_webhook")
    return Play(url=url, bench=bench, db=db, target=target)


@pytest.fixture
def submit(bench: Bench, finish: Callable[..., None]) -> Callable[..., int]:
    """A ranked submission and its results; nobody announces them, as after a daemon's death behind its commit."""

    def run(user: str, score_us: float, board: str = "identity") -> int:
        submission_id = bench.submit(mode="leaderboard", user_id=user, user_name=user.upper(), leaderboard=board)
        finish(score_s=score_us * 1e-6)
        return submission_id

    return run
