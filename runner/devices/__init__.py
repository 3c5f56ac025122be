"""What this host can run, and how its devices are: finds accelerators and processor cores and divides them into slots.

Owns the only calls of NVML and AMD SMI. Both are optional and neither may take the daemon down: a host without a driver
is a normal host. Must not touch the devices' settings.
"""

from runner.devices.facts import Details, Reading, UnreachableError
from runner.devices.listing import Listing, list_devices
from runner.devices.slots import detect_slots, spare_cpus

__all__ = ["Details", "Listing", "Reading", "UnreachableError", "detect_slots", "list_devices", "spare_cpus"]
