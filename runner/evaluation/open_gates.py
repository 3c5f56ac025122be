"""Remembers on which devices a worker has found that streams can wait for a number in the host's memory. Threadsafe.

A worker tries it in a process of its own, which costs a context on the device. What the driver can do does not change
while it is loaded, so it is tried once for the devices of a slot, and again after a run that told another thing, or
nothing at all.
Nothing is remembered when the daemon ends: the driver may change then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from runner.base.model import Slot
from sandbox.protocol import PairRequest, StepsRequest

#: What the judge says of a device whose calls its own work can mark.
_OPEN = "open"


class OpenGates:
    """What was tried, by devices."""

    def __init__(self) -> None:
        self._open_devices: set[tuple[str, ...]] = set()

    def with_gates(self, request: PairRequest | StepsRequest, slot: Slot) -> PairRequest | StepsRequest:
        """The request, with what is known of the slot's devices."""
        if not isinstance(request, PairRequest) or not slot.devices or _devices(slot) not in self._open_devices:
            return request
        return replace(request, payload={**request.payload, "streams_wait": True})

    def note(self, slot: Slot, details: Iterable[Mapping[str, Any]]) -> None:
        """Learn from the details of a judge's steps. Runs that time nothing say nothing of a gate."""
        if not slot.devices:
            return
        records = list(details)
        gates = {record["gate"] for record in records if "gate" in record}
        if gates == {_OPEN}:
            self._open_devices.add(_devices(slot))
        elif gates or not records:
            self._open_devices.discard(_devices(slot))


def _devices(slot: Slot) -> tuple[str, ...]:
    return tuple(device.uuid for device in slot.devices)
