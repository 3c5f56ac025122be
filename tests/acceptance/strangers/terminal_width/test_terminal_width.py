"""Terminals that say they have no columns, or fewer than a table needs, and variables that say so."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from runner.store import Store
from tests.integration.store.conftest import Bench, bench, db, store

__all__ = ["bench", "db", "store"]


def on_terminal(*arguments: str, size: tuple[int, int], **variables: str) -> str:
    """What a command prints on a terminal of so many lines and columns."""
    outer, inner = pty.openpty()
    with os.fdopen(outer, "rb", buffering=0) as screen:
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        command = [sys.executable, "-m", "runner.cli", *arguments]
        unset = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env={**unset, "TERM": "xterm", **variables}
        )
        os.close(inner)
        text = b""
        try:
            while data := screen.read(1 << 16):
                text += data
        except OSError:
            # Linux says so where the other side has ended.
            pass
        assert process.wait(60) == 0, text
    return re.sub(r"\x1b\[[\d;]*m", "", text.decode())


@pytest.mark.parametrize(("size", "said"), [((0, 0), {}), ((24, 7), {}), ((24, 80), {"COLUMNS": "0", "LINES": "0"})])
def test_tables_have_their_words(
    bench: Bench, store: Store, database_url: str, size: tuple[int, int], said: dict[str, str]
) -> None:
    """Cells of several columns are there, whatever says how many columns there are."""
    bench.board()
    bench.submit(user_name="Ada")
    words = on_terminal("status", size=size, DATABASE_URL=database_url, **said).split()
    assert {"1", "test", "CPU"} <= set(words), words
