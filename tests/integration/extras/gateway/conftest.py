"""A gateway on a free port, with a login of its role; users, boards, and a client that speaks plain HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runner.extras.config import SiteConfig
from runner.extras.gateway.app import build
from runner.extras.gateway.identity import digest
from runner.extras.gateway.queries import QUERIES
from runner.extras.gateway.server import Server
from runner.extras.store import AsyncStore
from runner.store import Store
from runner.store.connection import Row
from tests.integration.store.conftest import Bench, bench, db, finish, ranked, store
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_S, wait_until

__all__ = ["bench", "db", "finish", "store"]

ADMIN = "an-admin-token-of-the-tests"
BOUNDARY = "----the-boundary"
CODE = b"def custom_kernel(data):\n    return data\n"
#: A role that is there, or that another worker makes at this moment.
_THERE = (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the server says
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def detail(self) -> Any:  # noqa: ANN401 - a sentence or a list
        """What an error says."""
        return self.json["detail"]

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def ask(
    port: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        told = {key.lower(): ", ".join(response.headers.get_all(key, [])) for key in response.headers}
        return Answer(status=response.status, headers=told, body=response.read())
    finally:
        connection.close()


class Stream:
    """A connection on which a server sends events for as long as it likes."""

    def __init__(self, port: int, request: str, body: bytes = b"", **headers: str) -> None:
        lines = {"Host": f"127.0.0.1:{port}", "Connection": "close", "Content-Length": str(len(body)), **headers}
        head = "\r\n".join((f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "\r\n"))
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.sendall(head.encode() + body)
        self._file = self._socket.makefile("rb")
        self.got = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def until(self, words: bytes) -> None:
        """Read until it has said this."""
        while words not in self.got:
            chunk = self._file.read1(65536)
            assert chunk, f"the stream ended without {words!r}"
            self.got += chunk

    def shows(self, text: str) -> str:
        """The next state of a live page that has this text."""
        for line in self._file:
            if line.startswith(b"data: ") and text in (state := str(json.loads(line[6:])["html"])):
                return state
        raise AssertionError(f"the stream ended without {text!r}")

    def rest(self) -> bytes:
        """All that it has said, once it has ended."""
        self.got += self._file.read()
        return self.got


def streamed(port: int, mode: str, connection: str = "close") -> Stream:
    """Ada's submission as old clients send it, whose progress is sent as events; it has begun."""
    body, headers = multipart()
    stream = Stream(
        port,
        f"POST /identity/CPU/{mode}",
        body,
        **{**headers, "X-Popcorn-Cli-Id": "ada-token", "Connection": connection},
    )
    stream.until(b"event: status")
    return stream


def watching(gate: Gate, path: str, cookie: str = "") -> Stream:
    """A connection that follows live events."""
    return Stream(gate.port, f"GET {path}", Cookie=cookie)


def multipart(
    code: bytes = CODE, name: str | None = "fast.py", part: str = "file", fields: Mapping[str, str] | None = None
) -> tuple[bytes, dict[str, str]]:
    """A body with one file, and its headers."""
    blocks = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in (fields or {}).items()
    ]
    named = "" if name is None else f'; filename="{name}"'
    blocks.append(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{part}"{named}\r\n'.encode()
        + b"Content-Type: application/octet-stream\r\n\r\n"
        + code
        + b"\r\n"
    )
    return b"".join(blocks) + f"--{BOUNDARY}--\r\n".encode(), {
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"
    }


@dataclass(kw_only=True)
class Gate:
    """A running gateway and what a client needs."""

    port: int
    bench: Bench
    owner_url: str
    server: Server | None = None

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        cli: str | None = None,
        web: str | None = None,
        admin: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        bearer = None if admin is None else f"Bearer {admin}"
        who = {"X-Popcorn-Cli-Id": cli, "X-Web-Auth-Id": web, "Authorization": bearer}
        named = {name: value for name, value in who.items() if value is not None}
        return ask(self.port, method, path, body, {**(headers or {}), **named})

    def send_json(self, method: str, path: str, value: object, **more: Any) -> Answer:  # noqa: ANN401 - as `ask`
        """A request with a JSON body."""
        return self.ask(method, path, json.dumps(value).encode(), headers={"Content-Type": "application/json"}, **more)

    def submit(
        self,
        path: str = "/submission/identity/CPU/test",
        code: bytes = CODE,
        name: str | None = "fast.py",
        **more: Any,  # noqa: ANN401 - as `ask`
    ) -> Answer:
        """Send a file as popcorn-cli does."""
        body, headers = multipart(code, name)
        headers = {**headers, **more.pop("headers", {})}
        more.setdefault("cli", "ada-token")
        return self.ask("POST", path, body, headers=headers, **more)

    def rank(self, user: str = "ada", score_s: float = 2.5e-6, *, gpu: str = "CPU", **changes: object) -> int:
        """A ranked submission whose public and secret runs are over: its id."""
        given = {"user_id": user, "user_name": None, "mode": "leaderboard", "gpu_types": [gpu], **changes}
        number = self.bench.submit(**given)
        for _ in range(2):
            job = self.bench.claim(gpu)
            self.bench.store.complete(job, ranked(job, score_s))
        return number

    def user(
        self, user_id: str = "ada", token: str | None = None, web: str | None = None, name: str | None = None
    ) -> None:
        """A user with a token whose digest is stored, as `kernel-runner user token` stores it."""
        add_user(self.owner_url, user_id, token, web, name)

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """A statement as the owner of the database."""
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


def add_user(url: str, user_id: str, token: str | None = None, web: str | None = None, name: str | None = None) -> None:
    """As `Gate.user`, in any database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO leaderboard.user_info (id, user_name, cli_id, cli_valid, web_auth_id)"
            " VALUES (%s, %s, %s, true, %s)",
            (user_id, name or user_id.capitalize(), digest(token or f"{user_id}-token"), web),
        )


def approve(store: Store, code: str, user_id: str, *, user_name: str | None = None, existing: bool = False) -> None:
    """Make the login that waits under a code that of a user, as `user approve` does."""
    store.all(QUERIES["approve_login"], code=code, user_id=user_id, user_name=user_name, existing=existing)


def set_token(store: Store, user_id: str, token: str) -> None:
    """Give a user a token, as `user token` does."""
    store.all(QUERIES["set_token"], user_id=user_id, user_name=None, digest=digest(token))


def revoke(store: Store, user_id: str) -> bool:
    """End all logins of a user, as `user revoke` does."""
    return bool(store.all(QUERIES["revoke_login"], user_id=user_id)[0]["revoked"])


def states(store: Store) -> dict[str, str]:
    """The state of each user, as `user list` shows it."""
    return {row["user_id"]: row["state"] for row in store.all(QUERIES["users"])}


def invite(url: str, board: str, user_id: str) -> None:
    """Close a leaderboard to all but those who are invited, as this user is."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = %s", [board])
        connection.execute(
            "INSERT INTO leaderboard.user_info (id, user_name) VALUES (%s, 'ada') ON CONFLICT DO NOTHING", [user_id]
        )
        connection.execute(
            "WITH i AS (INSERT INTO leaderboard.leaderboard_invite (code, user_id) VALUES ('c', %s) RETURNING id)"
            " INSERT INTO leaderboard.leaderboard_invite_scope (invite_id, leaderboard_id)"
            " SELECT i.id, l.id FROM i, leaderboard.leaderboard l WHERE l.name = %s",
            [user_id, board],
        )


def login_of(url: str, name: str, role: str) -> str:
    """The URL of the same database for a login that has this role and no other."""
    create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}")
    with psycopg.connect(url, autocommit=True) as connection, suppress(*_THERE):
        connection.execute(create.format(sql.Identifier(name), sql.Literal(name), sql.Identifier(role)))
    return make_conninfo(url, user=name, password=name)


def gateway_login(url: str) -> str:
    """The URL of the same database for a login of the gateway."""
    return login_of(url, "runner_test_door", "runner_gateway")


def board_login(url: str) -> str:
    """The URL of the same database for a login of kernelboard."""
    return login_of(url, "runner_test_board", "runner_kernelboard")


@pytest.fixture
def open_gate(bench: Bench, database_url: str, tmp_path: Path) -> Iterator[Callable[..., Gate]]:
    """Starts gateways; more than one may stand before a database."""
    running: list[tuple[Server, threading.Thread]] = []

    def begin(*, patience_s: float = PATIENCE_S, **settings: Any) -> Gate:  # noqa: ANN401 - settings of any kind
        config = SiteConfig(
            database_url=gateway_login(database_url), state_dir=tmp_path, gateway_connections=4, **settings
        )
        # By default however long a busy machine takes to give the database back.
        store = AsyncStore(
            config.require_database_url(), queries=QUERIES, connections=4, name="test", patience_s=patience_s
        )
        app = build(config, store, admin_token=ADMIN)
        server = Server(app, host="127.0.0.1", port=0)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        wait_until(lambda: server.started, "the gateway listens")
        running.append((server, thread))
        port = server.servers[0].sockets[0].getsockname()[1]
        return Gate(port=port, bench=bench, owner_url=database_url, server=server)

    yield begin
    for server, thread in running:
        server.should_exit = True
        thread.join(PATIENCE_S)


@pytest.fixture
def limits_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit admits another request for the time that a test takes."""
    monkeypatch.setattr("runner.extras.gateway.limits.time", SimpleNamespace(monotonic=Clock()))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that gateways send."""
    sent: list[str] = []
    send = AsyncStore.all

    async def noted(store: AsyncStore, name: str, /, **values: object) -> Sequence[Row]:
        sent.append(name)
        return await send(store, name, **values)

    monkeypatch.setattr(AsyncStore, "all", noted)
    return sent


@pytest.fixture
def gate(open_gate: Callable[..., Gate]) -> Gate:
    """A gateway before a board `identity`, with the users ada and bob."""
    made = open_gate(gateway_requests_per_minute=100_000)
    made.bench.board()
    made.user("ada", web="ada-web")
    made.user("bob")
    return made
