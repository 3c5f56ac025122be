"""Says where a rank is when its time is up, so that the judge can name the rank that kept the others waiting."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter_ns
from types import FrameType
from typing import Any

import torch

from tasks.harness.shared.wire import Channel, PeerClosed, encode

from .failures import HARNESS
from .texts import cut

#: How often the reporter looks.
STALL_CHECK_S = 0.25
_TORCH = str(Path(torch.__file__).parent) + os.sep
_DISTRIBUTED = str(Path(torch.__file__).parent / "distributed") + os.sep


class StallReporter:
    """Sends where a rank is when its time is up. A rank inside a collective waits because of another rank.

    A thread that wakes up at fixed intervals, because waking it for every call would disturb the call.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        self._until_ns: int | None = None
        threading.Thread(target=self._watch, name="stall reporter", daemon=True).start()

    @contextmanager
    def until(self, until_ns: int) -> Iterator[None]:
        """Report if the block still runs at `until_ns` (time.perf_counter_ns)."""
        self._until_ns = until_ns
        try:
            yield
        finally:
            with self._lock:
                self._until_ns = None

    def _watch(self) -> None:
        while True:
            time.sleep(STALL_CHECK_S)
            with self._lock:
                if self._until_ns is not None and perf_counter_ns() > self._until_ns:
                    self._until_ns = None
                    with suppress(PeerClosed):
                        self._channel.send(encode(describe_place(sys._current_frames()[self._main])))  # noqa: SLF001 there is no public way to another thread's frames


def describe_place(frame: FrameType) -> dict[str, Any]:
    """A message with the submission's innermost line in a thread, and whether it waits for the other ranks."""
    stack = [entry for entry in traceback.extract_stack(frame) if not entry.filename.startswith(HARNESS)]
    others = [entry for entry in stack if not entry.filename.startswith(_TORCH)]
    own = [entry for entry in others if entry.filename.startswith(str(Path.cwd()) + os.sep)] or others
    if not own:
        # The kernel has returned, but its work on the device has not ended: most likely a collective.
        return {"op": "stuck", "text": "waited for its device", "waits": True}
    waits = any(entry.filename.startswith(_DISTRIBUTED) for entry in stack)
    what = "waited for the others at" if waits else "was at"
    text = f"{what} {Path(own[-1].filename).name}:{own[-1].lineno}, in {own[-1].name}"
    return {"op": "stuck", "text": cut(text), "waits": waits}
