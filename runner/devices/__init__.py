"""The devices of this host: finds accelerators and cores, divides them into slots, reads the state of devices.

Owns the only calls of NVML and AMD SMI. Both are optional: a host without a driver is a normal host, and no driver may
take the daemon down. Must not change settings of devices.
"""

from runner.base.device_facts import Details, Reading, UnreachableError
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
