"""Keeps times of references between groups: by reference, baseline, devices and software. Threadsafe.

A group's judge says what its reference took. The next group of the same reference on the same devices begins with
these times, makes fewer calls of its own, and drops them if the reference does not take as long any more. The judge's
word is checked as every report is. Nothing is kept when the daemon ends: drivers and kernels change between two starts.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from typing import Any, Final

from runner.base.model import Slot
from tasks.harness.judge.modules.group import Group
from tasks.harness.judge.modules.reference_times import from_message

#: References whose times are kept; at most 200 times for each of two modes, so about 8 MiB in all.
MOST_REFERENCES: Final = 2000


class KeptTimes:
    """Times by key, the least recently used dropped first."""

    def __init__(self, most: int = MOST_REFERENCES) -> None:
        """`most`: how many references are kept."""
        self._most = most
        self._lock = threading.Lock()
        self._times: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def get(self, key: str) -> dict[str, Any]:
        """What is known of a reference, by mode, as the judge's request has it; empty: nothing."""
        with self._lock:
            if key not in self._times:
                return {}
            self._times.move_to_end(key)
            return dict(self._times[key])

    def put(self, key: str, message: object) -> bool:
        """Keep what a judge has said; False if that makes no sense, and is dropped."""
        try:
            read = from_message(message)
        except ValueError:
            return False
        with self._lock:
            known = {**self._times.pop(key, {}), **{mode: times.to_message() for mode, times in read.items()}}
            self._times[key] = known
            if len(self._times) > self._most:
                self._times.popitem(last=False)
        return True


def key_of(group: Group, slot: Slot, *, image: str, runtime: str) -> str:
    """What times of a reference depend on, as a hash: its text and settings, the slot's devices and cores, software."""
    settings = group.settings
    parts = [
        *(group.reference, group.entry_point, settings.baseline, settings.precision),
        *([[device.uuid, device.name] for device in slot.devices], list(slot.cpus), image, runtime),
    ]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()
