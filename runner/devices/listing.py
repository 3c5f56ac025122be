"""Every accelerator of this host, whichever vendor's. Neither vendor's library can disturb the other, or the caller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from runner.devices.amd import AmdSmi
from runner.devices.nvidia import Nvml
from runner.gpus import Vendor
from runner.model import Device

#: How each vendor's library is opened.
OPENERS: Final[dict[Vendor, Callable[[], Nvml | AmdSmi | None]]] = {
    Vendor.NVIDIA: Nvml.open,
    Vendor.AMD: AmdSmi.open,
}


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The accelerators of this host, and what went wrong while looking for them (sentences for the operator)."""

    devices: tuple[Device, ...]
    problems: tuple[str, ...]


def list_devices() -> Listing:
    """Every accelerator that a vendor library reports. Never raises: what fails becomes a problem."""
    devices: list[Device] = []
    problems: list[str] = []
    for vendor, opener in OPENERS.items():
        # A vendor's library is foreign code around a driver: whatever it raises must not stop a host that could do
        # without it, and there is no type that covers what the AMD bindings raise.
        try:
            library = opener()
            if library is None:
                continue
            try:
                devices += library.devices(problems.append)
            finally:
                with suppress(Exception):
                    library.close()
        except Exception as error:  # noqa: BLE001 - see above
            problems.append(f"{vendor} devices cannot be listed: {type(error).__name__}: {error}")
    return Listing(devices=tuple(devices), problems=tuple(problems))
