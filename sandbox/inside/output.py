"""What init keeps of a program's output: bounded, decoded, counted. Pure, standard library only.

Called by init's step runner and pair runner.
"""

from __future__ import annotations

import json

#: What the result pipe may say. A profile report in base64 is the largest honest thing.
RESULT_BYTES = 8 << 20
RESULT_KEYS = 20_000
RESULT_LINE_BYTES = 6 << 20
RESULT_KEY_CHARS = 512


def decode_text(data: bytes) -> str:
    """Text that PostgreSQL and JSON can hold: invalid UTF-8 and NUL become U+FFFD."""
    return data.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")


class Excerpt:
    """The first and the last half of a stream, and how long it was.

    Errors stand at the end of an output and what led to them at its start; the middle is what nobody misses.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes - limit_bytes // 2
        self._tail_limit = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Take in what was read."""
        self.total_bytes += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            # Trimmed at twice the size, so that a flood costs no copy per read.
            if len(self._tail) > 2 * self._tail_limit + (1 << 16):
                del self._tail[: len(self._tail) - self._tail_limit]

    def text(self) -> str:
        """What is kept, with a line in the place of what is not."""
        tail = self._tail[len(self._tail) - min(len(self._tail), self._tail_limit) :]
        left_out = self.total_bytes - len(self._head) - len(tail)
        if left_out == 0:
            return decode_text(bytes(self._head + tail))
        return f"{decode_text(bytes(self._head))}\n[... {left_out} bytes left out ...]\n{decode_text(bytes(tail))}"


class ResultLines:
    """The result pipe: `key: value` lines, split at the first colon, both sides stripped; the last of a key wins.

    Lines without a colon are ignored. Whatever exceeds a cap is dropped and `complaint` says so.
    """

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._partial = bytearray()
        self._cost = 0
        self._skipping = False
        #: A sentence for the program's author; None when nothing was dropped.
        self.complaint: str | None = None

    def add(self, data: bytes) -> None:
        """Take in what was read."""
        lines = data.split(b"\n")
        for line in lines[:-1]:
            self._extend(line)
            self._finish_line()
        self._extend(lines[-1])

    def values(self) -> dict[str, str]:
        """All that was said; a last line needs no newline."""
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
        # What counts is the size in the report, where JSON may need six bytes for one.
        cost = len(json.dumps(key)) + len(json.dumps(value))
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
