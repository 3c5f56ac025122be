"""Which code of a task's or a reference's author runs in this process, on a page that outlives the process.

Such code can end the judge or a rank checker without an exception: `os._exit`, a crash of native code, memory that the
kernel takes back. Whoever started the process holds the page's descriptor, and reads what ran (`sandbox.protocol`).
Without a page nothing is written.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from sandbox.protocol import AUTHOR_PAGE_BYTES, AUTHOR_PAGE_FD
from tasks.harness.shared.children import end_if_child

_page: mmap.mmap | None = None
_call = ""
_place = ""


def open_page(descriptor: int) -> None:
    """Write to the page of this descriptor from now on, and close the descriptor."""
    global _page  # noqa: PLW0603 a page for each process
    _page = mmap.mmap(descriptor, AUTHOR_PAGE_BYTES)
    os.close(descriptor)


def open_page_if_given() -> None:
    """Open the page whose descriptor the environment names, if it names one."""
    descriptor = os.environ.pop(AUTHOR_PAGE_FD, None)
    if descriptor is not None:
        open_page(int(descriptor))


def begin_at(at: str) -> None:
    """Calls from now on belong to this place, such as a case."""
    global _place  # noqa: PLW0603 see `open_page`
    _place = at


class Escaped(Exception):
    """The author's code raised what is no Exception, such as SystemExit or a panic of Rust; that is the cause."""


def place() -> str:
    """Where calls belong now."""
    return _place


@contextlib.contextmanager
def running(call: str) -> Iterator[None]:
    """Inside, code of the author runs: `call` names it. What is no Exception comes out as Escaped, no child does."""
    before, pid = _call, os.getpid()
    _write(call)
    try:
        yield
    except BaseException as error:
        end_if_child(pid, error)
        if isinstance(error, KeyboardInterrupt):
            # It ends the process, as who starts one means it to.
            raise
        _write(before)
        if isinstance(error, Exception):
            raise
        raise Escaped from error
    end_if_child(pid)
    _write(before)


def sentence_of(error: BaseException, directory: Path | None = None) -> str:
    """An exception of the author's code as text; its first line ends with where it was raised below `directory`."""
    shown = error.__cause__ or error if isinstance(error, Escaped) else error
    text = "".join(traceback.format_exception_only(shown)).strip()[:2000]
    if directory is None:
        return text
    frames = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(shown.__traceback__)]
    own = [f" ({path.relative_to(directory)}, line {line})" for path, line in frames if path.is_relative_to(directory)]
    first, newline, rest = text.replace(f"{directory}/", "").partition("\n")
    # A SyntaxError names its own place.
    return first + (own[-1] if own and not isinstance(shown, SyntaxError) else "") + newline + rest


def _write(call: str) -> None:
    global _call  # noqa: PLW0603 see `open_page`
    _call = call
    if _page is not None:
        data = f"{call}\n{_place}".encode("utf-8", "replace")[: AUTHOR_PAGE_BYTES - 1] if call else b""
        _page[: len(data) + 1] = data + b"\0"
