"""Runs the application with uvicorn; called by `kernel-runner gateway`."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
from contextlib import suppress

import uvicorn

from runner import logs
from runner.config import Config, listening_socket
from runner.errors import ConfigError
from runner.gateway.app import build
from runner.store.gateway import GatewayStore

#: How long open requests and streams may take after SIGTERM.
_GRACE_S = 10
_KEEP_ALIVE_S = 30
_CONNECTIONS = 4096


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: no database, an admin token that cannot be used, or an address that cannot be had.
    """
    logs.configure(config.log_format, config.log_level)
    store = GatewayStore(config.require_database_url(), connections=config.gateway_connections)
    token = config.gateway_admin_token()
    app = build(config, store, admin_token=token)
    given = listening_socket()
    address = config.gateway_address
    if given is None and address.path is not None:
        # What an earlier process left.
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(address.path.lstat().st_mode):
                address.path.unlink()
    log = logs.get_logger("gateway.server")
    log.info("the gateway starts", listen=str(address) if given is None else "systemd", admin=token is not None)
    # uvicorn finishes what is open and then sends itself the signal again: that is the end wanted, not a failure.
    signal.signal(signal.SIGTERM, _end)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=address.host or "127.0.0.1",
            port=address.port,
            uds=None if address.path is None else os.fspath(address.path),
            # The parser that bounds the size of headers.
            http="h11",
            ws="none",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=True,
            forwarded_allow_ips=config.gateway_trusted_proxies,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            limit_concurrency=_CONNECTIONS,
            backlog=1024,
        )
    )
    with suppress(KeyboardInterrupt):
        server.run(None if given is None else [socket.socket(fileno=given)])
    if not server.started:
        raise ConfigError(f"the gateway cannot listen at {address} (gateway_listen); the log says why")


def _end(_number: int, _frame: object) -> None:
    sys.exit(0)
