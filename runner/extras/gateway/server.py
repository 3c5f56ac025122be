"""Runs the application with uvicorn; called by `kernel-runner gateway`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from contextlib import suppress
from ipaddress import ip_network

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from runner.base import logs
from runner.base.environment import listening_sockets
from runner.base.errors import ConfigError
from runner.extras.config import SiteConfig
from runner.extras.gateway.app import build
from runner.extras.gateway.context import AppState
from runner.extras.gateway.queries import QUERIES
from runner.extras.store import PATIENCE_S, AsyncStore
from runner.store import direct_address

#: How long open requests may take after SIGTERM: longer than one waits for a database that is away.
GRACE_S = int(PATIENCE_S) + 2
_KEEP_ALIVE_S = 30
_CONNECTIONS = 4096
#: How long a connection without a request yet may stay when the process is to stop: its request is on the way.
_FIRST_REQUEST_S = 5.0
_LOOK_S = 0.05
#: How long a client may leave unread what fills its connection's buffer: two pieces of an answer at most.
UNREAD_S = 60.0


class Protocol(H11Protocol):
    """The parser that bounds the size of headers; it ends connections whose clients do not read."""

    _late: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The buffer is full."""
        super().pause_writing()
        self._late = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read, or is gone."""
        self._keep()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its end."""
        self._keep()
        super().connection_lost(exc)

    def _keep(self) -> None:
        if self._late is not None:
            self._late.cancel()


class Server(uvicorn.Server):
    """uvicorn with the gateway's bounds. Streams end as soon as it is to stop; requests get `GRACE_S`."""

    def __init__(
        self, app: Starlette, *, host: str, port: int, uds: str | None = None, proxies: str | None = None
    ) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                uds=uds,
                http=Protocol,
                ws="none",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=proxies is not None,
                forwarded_allow_ips=proxies,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
                limit_concurrency=_CONNECTIONS,
                backlog=1024,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no connection any more, end streams, and wait for requests; also for those that are on the way."""
        current = self._app.state.gateway
        if isinstance(current, AppState):
            current.watcher.leave()
            current.live.leave()
        for listening in self.servers:
            listening.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_REQUEST_S):
                # A client that has had no request yet would else lose its connection without an answer.
                while any(vars(each).get("cycle") is None for each in self.server_state.connections):  # noqa: ASYNC110 - uvicorn has no event for a request
                    await asyncio.sleep(_LOOK_S)
        await super().shutdown(sockets)


def serve(config: SiteConfig) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: no database, an admin token that cannot be used, or an address that cannot be had.
    """
    logs.configure(config.log_format, config.log_level)
    # It listens, and a pool of its own needs no other.
    dsn = direct_address(config.require_database_url(), config.direct_host)
    store = AsyncStore(dsn, queries=QUERIES, connections=config.gateway_connections, name="kernel-runner gateway")
    token = config.gateway_admin_token()
    app = build(config, store, admin_token=token)
    handed_over = listening_sockets()
    address = config.gateway_address
    if not handed_over and address.path is not None:
        # What an earlier process left.
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(address.path.lstat().st_mode):
                address.path.unlink()
    log = logs.get_logger("gateway.server")
    log.info("the gateway starts", listen="systemd" if handed_over else str(address), admin=token is not None)
    # uvicorn finishes what is open and then sends itself the signal again: that is the end wanted, not a failure.
    signal.signal(signal.SIGTERM, _end)
    server = Server(
        app,
        host=address.host or "127.0.0.1",
        port=address.port,
        uds=None if address.path is None else os.fspath(address.path),
        proxies=trusted(config.gateway_trusted_proxies),
    )
    with suppress(KeyboardInterrupt):
        server.run([socket.socket(fileno=number) for number in handed_over] or None)
    if not server.started:
        raise ConfigError(f"the gateway cannot listen at {address} (gateway_listen); the log says why")


def trusted(proxies: str) -> str:
    """Proxies as uvicorn takes them, those of version 4 also as a socket of both versions shows them."""
    networks = [ip_network(network.strip()) for network in proxies.split(",") if network not in ("", "*")]
    mapped = [f"::ffff:{each.network_address}/{96 + each.prefixlen}" for each in networks if each.version == 4]
    return ",".join([*map(str, networks), *mapped]) or proxies


def _end(_number: int, _frame: object) -> None:
    sys.exit(0)
