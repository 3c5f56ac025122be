"""What the person sees while waiting: one live line on a terminal, one plain line per change elsewhere. On stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.status import Status
from rich.text import Text

from runner.base.safe import one_line
from runner.cli.app import console


class ProgressLine:
    """A context manager around the waiting; `show` may be called from one other thread."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._live = Status("", console=self._console) if self._console.is_terminal else None
        self._last: str | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, text: str) -> None:
        """Replace the line, or write it if it says something new."""
        text = one_line(text)
        if text == self._last:
            return
        self._last = text
        if self._live is not None:
            self._live.update(Text(text))
        else:
            self._console.print(text)
