"""Counts what a daemon asks a database: statements, as messages of the wire protocol, from all its connections."""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.integration.daemon.proxy import Proxy

#: A simple query, and the execution of a prepared one (PostgreSQL manual, 54.7, message formats).
_STATEMENTS = (b"Q", b"E")


class Meter(Proxy):
    """An open door that counts statements."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url)
        self.statements = 0
        self.open()

    def tap(self) -> Callable[[bytes], object]:
        """Reads one connection's messages: a start-up message without a type, then a type and a length each."""
        buffer = bytearray()
        started = False

        def see(data: bytes) -> None:
            nonlocal started
            buffer.extend(data)
            while True:
                head = 1 if started else 0
                if len(buffer) < head + 4:
                    return
                end = head + struct.unpack_from("!I", buffer, head)[0]
                if len(buffer) < end:
                    return
                self.statements += started and bytes(buffer[:1]) in _STATEMENTS
                started = True
                del buffer[:end]

        return see
