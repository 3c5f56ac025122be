"""Locks the clocks of devices as their GPU types demand, and gives them back to the driver.

No other module changes a setting of a device. Only root may do it (`kernel-runner gpu clocks`). The daemon only checks
the clocks (`runner.devices.health`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from runner.base.device_facts import RefusedError, UnreachableError
from runner.base.model import Device
from runner.devices.listing import each_library
from runner.devices.vendors import Library
from runner.gpu_types import ClockPolicy


def set_clocks(demands: Mapping[str, ClockPolicy], *, lock: bool) -> Mapping[str, str | None]:
    """Lock the clocks that are demanded, or give them back to the driver.

    Args:
        demands: UUID of a device -> the clocks that it shall have. Other devices stay as they are.
        lock: False gives the clocks back.

    Returns:
        UUID of each device -> the setting that it or its driver refused, and why; None: none was refused.
    """

    def change(library: Library, problem: Callable[[str], None]) -> Iterator[tuple[str, str | None]]:
        for device in library.devices(problem):
            if device.uuid in demands:
                yield device.uuid, _refusal(library, device, demands[device.uuid], lock=lock)

    changed, _ = each_library(change)
    return dict.fromkeys(demands, "it is not listed any more") | dict(changed)


def _refusal(library: Library, device: Device, clocks: ClockPolicy, *, lock: bool) -> str | None:
    try:
        (library.lock if lock else library.release)(device, clocks)
    except (RefusedError, UnreachableError) as error:
        return str(error)
    return None
