"""Collects a program's output within limits: decodes it, counts it, drops the excess. Pure.

Standard library only: this runs inside the container.
"""

from __future__ import annotations

import json

#: Limits of the result pipe. The largest honest value is a profile report in base64.
RESULT_BYTES = 8 << 20
RESULT_KEYS = 20_000
RESULT_LINE_BYTES = 6 << 20
RESULT_KEY_CHARS = 512


def decode_text(data: bytes) -> str:
    """Decode bytes to text that PostgreSQL and JSON can hold: invalid UTF-8 and NUL become U+FFFD."""
    return data.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")


class Excerpt:
    """The first and the last half of a stream, and its length.

    Errors stand at the end of the output and their causes at its start, so the middle is dropped.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes - limit_bytes // 2
        self._tail_limit = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Add what was read."""
        self.total_bytes += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            # Trim only at twice the size, so that a flood does not cost one copy per read.
            if len(self._tail) > 2 * self._tail_limit + (1 << 16):
                del self._tail[: len(self._tail) - self._tail_limit]

    def text(self) -> str:
        """The text that was kept, with a line in place of the dropped middle."""
        tail = self._tail[len(self._tail) - min(len(self._tail), self._tail_limit) :]
        left_out = self.total_bytes - len(self._head) - len(tail)
        if left_out == 0:
            return decode_text(bytes(self._head + tail))
        return f"{decode_text(bytes(self._head))}\n[... {left_out} bytes left out ...]\n{decode_text(bytes(tail))}"


class ResultLines:
    """The result pipe: `key: value` lines, split at the first colon, both parts stripped; the last of a key counts.

    Lines without a colon are ignored. The excess over a limit is dropped, and `complaint` says so.
    """

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._partial = bytearray()
        self._cost = 0
        self._skipping = False
        #: A sentence for the program's author; None if nothing was dropped.
        self.complaint: str | None = None

    def add(self, data: bytes) -> None:
        """Add what was read."""
        lines = data.split(b"\n")
        for line in lines[:-1]:
            self._extend(line)
            self._finish_line()
        self._extend(lines[-1])

    def values(self) -> dict[str, str]:
        """All values. The last line needs no newline."""
        self._finish_line()
        return dict(self._values)

    def _extend(self, piece: bytes) -> None:
        if self._skipping or not piece:
            return
        if len(self._partial) + len(piece) > RESULT_LINE_BYTES:
            self._drop(f"a line of more than {RESULT_LINE_BYTES} bytes")
            self._partial.clear()
            self._skipping = True
            return
        self._partial += piece

    def _finish_line(self) -> None:
        line, self._skipping = bytes(self._partial), False
        self._partial.clear()
        if b":" not in line:
            return
        key, value = (part.strip() for part in decode_text(line).split(":", 1))
        if len(key) > RESULT_KEY_CHARS:
            self._drop(f"a key of more than {RESULT_KEY_CHARS} characters")
            return
        # What an earlier line of this key has cost is free again.
        cost = _cost(key, value) - (_cost(key, self._values[key]) if key in self._values else 0)
        if self._cost + cost > RESULT_BYTES:
            self._drop(f"more than {RESULT_BYTES} bytes")
        elif key not in self._values and len(self._values) >= RESULT_KEYS:
            self._drop(f"more than {RESULT_KEYS} keys")
        else:
            self._cost += cost
            self._values[key] = value

    def _drop(self, what: str) -> None:
        if self.complaint is None:
            self.complaint = f"sandbox: the result pipe carried {what}; the excess was dropped"


def _cost(key: str, value: str) -> int:
    """The size in the report: JSON may need six bytes for one."""
    return len(json.dumps(key)) + len(json.dumps(value))
