"""The journal of a step: every answer that was paid for, kept at once, so that a rerun asks only what is missing.

One SQLite file per output folder. An answer belongs to its request: the hash of model, parameters and messages. So a
changed prompt or model asks again, and equal requests are asked once.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runner.base.errors import DataError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answer (
    step text NOT NULL,
    request text NOT NULL,
    -- Whether the step could use the text; if not, why.
    good integer NOT NULL,
    why_not text,
    text text,
    -- What the model thought first, where the endpoint says it; and how long the last try took.
    reasoning text,
    took_ms real NOT NULL,
    tries integer NOT NULL,
    tokens_in integer NOT NULL,
    tokens_out integer NOT NULL,
    at text NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (step, request)
) STRICT, WITHOUT ROWID
"""
_COLUMNS = ("good", "text", "why_not", "reasoning", "took_ms", "tries", "tokens_in", "tokens_out")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one request came to."""

    good: bool
    #: The model's text, usable or not.
    text: str
    why_not: str | None = None
    reasoning: str | None = None
    took_ms: float = 0.0
    tries: int = 1
    tokens_in: int = 0
    tokens_out: int = 0


class Journal:
    """The answers in a file. Not threadsafe. `in_memory`: leave the file alone.

    Raises:
        DataError: the file is no journal, or cannot be written.
    """

    def __init__(self, path: Path, *, in_memory: bool = False) -> None:
        self.path = path
        try:
            if not in_memory:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(":memory:" if in_memory else path, isolation_level=None, timeout=60.0)
            with ExitStack() as undo:
                undo.callback(self._database.close)
                # An answer survives the end of the process at once, and a power cut within a second or so.
                self._database.execute("PRAGMA journal_mode = wal")
                self._database.execute("PRAGMA synchronous = normal")
                self._database.execute(_SCHEMA)
                undo.pop_all()
        except (OSError, sqlite3.Error) as error:
            raise DataError(f"{path} cannot be used as the journal: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def find(self, step: str, request: str) -> Answer | None:
        """The answer to a request, if it is there."""
        row = self._database.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM answer WHERE step = ? AND request = ?",  # noqa: S608 our own names
            (step, request),
        ).fetchone()
        if row is None:
            return None
        columns = dict(zip(_COLUMNS, row, strict=True))
        return Answer(**{**columns, "good": bool(columns["good"])})

    def keep(self, step: str, request: str, answer: Answer) -> None:
        """Keep an answer. A later one to the same request replaces it."""
        self._database.execute(
            f"INSERT OR REPLACE INTO answer (step, request, {', '.join(_COLUMNS)}) "  # noqa: S608 our own names
            f"VALUES (?, ?{', ?' * len(_COLUMNS)})",
            (step, request, *(getattr(answer, column) for column in _COLUMNS)),
        )

    def forget_bad(self, step: str) -> int:
        """Forget the answers that the step could not use, so that they are asked for again; how many they were."""
        return self._database.execute("DELETE FROM answer WHERE step = ? AND NOT good", (step,)).rowcount


def request_of(model: str, messages: object, parameters: Mapping[str, Any]) -> str:
    """The name of a request: a hash of all that its answer depends on."""
    parts = json.dumps([model, messages, parameters], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()
