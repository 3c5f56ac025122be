"""What this host can run, and how its devices are: finds accelerators and processor cores and divides them into slots.

Owns the only calls of NVML and AMD SMI. Both are optional and neither may take the daemon down: a host without a driver
is a normal host. Must not touch the devices' settings, but for `locking`, which root alone calls.
"""

from runner.devices.facts import Details, Reading, UnreachableError
from runner.devices.listing import Listing, Look, list_devices, look_at_devices
from runner.devices.slots import described, detect_slots, spare_cpus, types_of

__all__ = [
    "Details",
    "Listing",
    "Look",
    "Reading",
    "UnreachableError",
    "described",
    "detect_slots",
    "list_devices",
    "look_at_devices",
    "spare_cpus",
    "types_of",
]
