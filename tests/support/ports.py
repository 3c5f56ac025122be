"""Ports for programs that must be told one before they listen."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000


def free_port() -> int:
    """A port below those that the kernel gives to outgoing connections; nothing listens on it.

    Of the kernel's own ports, one that is closed again may be a connection's the next moment. Where the kernel's begin
    too low, it is one of them all the same.
    """
    below = range(_LOWEST, int(_RANGE.read_text(encoding="ascii").split()[0]))
    while True:
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", random.choice(below) if below else 0))  # noqa: S311 no secret
            except OSError:
                continue
            return int(tried.getsockname()[1])
