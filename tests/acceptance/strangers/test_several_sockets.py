"""One, two and three sockets of different families, as `ListenStream=` of a drop-in adds them."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

from tests.plugins.live import ROOT
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)


def listen(family: socket.AddressFamily, folder: Path) -> socket.socket:
    """A listening socket of a family."""
    listening = socket.socket(family)
    address = {socket.AF_INET: ("127.0.0.1", 0), socket.AF_INET6: ("::1", 0)}.get(family, str(folder / "socket"))
    listening.bind(address)
    listening.listen()
    return listening


def health(listening: socket.socket) -> bytes:
    """What is answered there."""
    with socket.socket(listening.family) as client:
        client.settimeout(PATIENCE_S)
        client.connect(listening.getsockname())
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        return client.makefile("rb").readline()


@pytest.mark.parametrize(
    "families",
    [each for number in (1, 2, 3) for each in combinations(FAMILIES, number)],
    ids=lambda each: str(len(each)),
)
def test_each_socket_is_served(tmp_path: Path, families: tuple[socket.AddressFamily, ...]) -> None:
    """The database may be away; what the configuration says of an address does not count."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(listen(family, tmp_path)) for family in families]
        # Away from 3, 4 and 5, where they are to be.
        high = [fcntl.fcntl(each.fileno(), fcntl.F_DUPFD, 10) for each in sockets]
        for descriptor in high:
            opened.callback(os.close, descriptor)
        places = " ".join(f"{3 + number}<&{descriptor}" for number, descriptor in enumerate(high))
        handed = f'export LISTEN_FDS={len(sockets)} LISTEN_PID=$$; exec "$@" {places}'
        process = opened.enter_context(
            subprocess.Popen(
                ["bash", "-c", handed, "bash", sys.executable, "-m", "runner.cli", "gateway"],
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(ROOT),
                    "DATABASE_URL": f"postgresql://x@127.0.0.1:{free_port()}/x",
                    "KERNEL_RUNNER_GATEWAY_LISTEN": f"127.0.0.1:{free_port()}",
                },
                pass_fds=high,
                stderr=subprocess.DEVNULL,
            )
        )
        opened.callback(process.kill)
        for each in sockets:
            assert health(each).startswith(b"HTTP/1.1 200 ")
