"""Asks a daemon over HTTP, on a port or a unix socket, and reads what `/metrics` says."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import PATIENCE_S


class _Unix(http.client.HTTPConnection):
    """A connection to a unix socket, whose path may be longer than an address."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        """By way of the directory's descriptor."""
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(PATIENCE_S)
            self.sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)


def get(address: str, path: str) -> tuple[int, str]:
    """Status and text."""
    kind, _, rest = address.partition(":")
    connection = _Unix(Path(rest)) if kind == "unix" else http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def samples(text: str) -> Mapping[tuple[str, frozenset[tuple[str, str]]], float]:
    """What `/metrics` said, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
