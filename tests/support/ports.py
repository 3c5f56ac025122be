"""Ports for programs that must be told one before they listen."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000


def free_port() -> int:
    """A port that nothing listens on, drawn from those that the kernel gives to nobody by itself.

    One that the kernel has given, and that is closed again, may be somebody's connection the next moment.
    """
    given_from = int(_RANGE.read_text(encoding="ascii").split()[0])
    while True:
        port = random.randrange(_LOWEST, given_from)  # noqa: S311 no secret
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that the kernel gives to nobody else meanwhile; a server that sets SO_REUSEADDR, as most do, gets it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
