"""`watch`: a screen that follows the fleet: hosts, slots, what runs, the queue, the newest verdicts.

Drawn by rich, like every page here: it works over ssh in any terminal with a cursor, and needs no further package.
Reads the keyboard with the standard library. Each refresh costs the database seven short statements.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.live import Live

from runner.cli import screen
from runner.cli.app import ExitCode, app, console, example, fail, out, session
from runner.cli.safe import one_line
from runner.errors import DatabaseUnavailableError
from runner.store import Store

#: More rows than any terminal has.
_LIMIT: Final = 500
_KEYS: Final = "q quit   / filter   Esc no filter"


@app.command(epilog=example("kernel-runner watch --once"))
def watch(
    context: typer.Context,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, for pipes and scripts.")] = False,
    every_s: Annotated[
        float, typer.Option("--every", metavar="S", min=0.2, max=3600.0, help="Refresh every S seconds.")
    ] = 2.0,
    filter_text: Annotated[
        str, typer.Option("--filter", metavar="WORDS", help="Show only rows with all of these words.")
    ] = "",
) -> None:
    """Watch hosts, slots, queue, batches and verdicts.

    `/` and words filter the rows, Esc ends the filter, `q` or Ctrl-C ends. Secret runs show no progress. A slot that is
    not used or ranks nothing says why; `?` is a job that has not reported yet. While the database is away, the first
    line says so. `watch` and `logs` need only role `runner_operator`.
    """
    with session(context).store() as store:
        if once:
            scene = look(store)
            head = screen.headline(scene, datetime.now(UTC))
            out(screen.frame(scene, filter_text=filter_text, head=head))
            return
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            fail("watch needs a terminal for its screen and its keys; `kernel-runner watch --once` prints one frame")
            raise typer.Exit(ExitCode.USAGE)
        follow(lambda: look(store), every_s=every_s, filter_text=filter_text)


def look(store: Store) -> screen.Scene:
    """What there is to see now."""
    return screen.Scene(
        hosts=store.hosts(),
        running=store.running(limit=_LIMIT),
        queue=store.queue_depths(),
        pauses=store.pauses(),
        latest=store.latest(limit=_LIMIT),
        throughput=store.throughput(),
        batches=store.open_batches(limit=_LIMIT),
    )


class Keys:
    """What the keys have done so far: the filter, and whether that was enough. Pure."""

    def __init__(self, filter_text: str = "") -> None:
        self.filter_text = filter_text
        #: Letters go to the filter.
        self.typing = False
        self.quit = False

    def press(self, text: str) -> None:
        """Take what was typed, one character after the other; a sequence that starts with Esc counts as Esc."""
        if text.startswith("\x1b"):
            text = "\x1b"
        for key in text:
            if key in "\x03\x04":
                self.quit = True
            elif key == "\x1b":
                self.filter_text, self.typing = "", False
            elif not self.typing:
                self.quit = self.quit or key in "qQ"
                self.typing = key == "/"
            elif key in "\r\n":
                self.typing = False
            elif key in "\x7f\b":
                self.filter_text = self.filter_text[:-1]
            elif key.isprintable():
                self.filter_text += key

    @property
    def foot(self) -> str:
        """The last line of the screen."""
        if self.typing:
            return f"filter: {self.filter_text}▏   Enter done   Esc no filter"
        return f"{_KEYS}{f'   showing: {self.filter_text}' if self.filter_text else ''}"


def follow(
    take: Callable[[], screen.Scene], *, every_s: float, filter_text: str, clock: Callable[[], float] = time.monotonic
) -> None:
    """Show the screen until the user ends it; `take` reads the database."""
    target = console(stderr=False)
    keys = Keys(filter_text)
    scene: screen.Scene | None = None
    trouble = ""
    due_s = clock()
    with _keyboard() as typed, Live(console=target, screen=True, auto_refresh=False) as live:
        while not keys.quit:
            if clock() >= due_s:
                try:
                    scene, trouble = take(), ""
                except DatabaseUnavailableError as error:
                    trouble = f"the database is away, trying again: {one_line(str(error))}"
                due_s = clock() + every_s
            shown = scene or screen.Scene(hosts=(), running=(), queue=(), latest=(), throughput=())
            head = trouble or screen.headline(shown, datetime.now(UTC))
            live.update(
                screen.frame(shown, filter_text=keys.filter_text, height=target.size.height, head=head, foot=keys.foot),
                refresh=True,
            )
            keys.press(typed(max(0.0, due_s - clock())))


@contextmanager
def _keyboard() -> Iterator[Callable[[float], str]]:
    """Keys as they are pressed, without echo; the call waits so many seconds for one. Afterwards all is as it was."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def typed(wait_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        if not ready:
            return ""
        found = os.read(descriptor, 64)
        # An end of input: the terminal is gone.
        return found.decode("utf-8", errors="ignore") if found else "\x04"

    tty.setcbreak(descriptor)
    try:
        yield typed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
