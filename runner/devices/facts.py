"""What vendor libraries say of a device, as records. Pure. None: it does not tell."""

from __future__ import annotations

from dataclasses import dataclass


class UnreachableError(Exception):
    """A device does not answer: it fell off the bus, needs a reset, or its driver is gone or hangs."""


class RefusedError(Exception):
    """A device or its driver does not take a setting; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class Details:
    """How a device is set up; changes only when an operator changes it."""

    driver: str | None = None
    #: The newest CUDA that the driver runs, or the ROCm release of the library.
    toolkit: str | None = None
    #: Compute capability ("9.0") or gfx target ("gfx942").
    architecture: str | None = None
    memory_bytes: int | None = None
    ecc: bool | None = None
    #: Whether a device is divided into instances of its own (MIG), as a whole.
    mig: bool | None = None
    persistence: bool | None = None
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a device is right now."""

    used_bytes: int | None = None
    #: Process ids, on the host, that compute on it.
    processes: tuple[int, ...] | None = None
    #: Errors in its memory that could not be corrected, since its driver was loaded or it was reset.
    uncorrected: int | None = None
    #: Memory to be taken out of use at the next reset (row remapping, page retirement).
    remap_pending: bool | None = None
    #: There was no spare memory left to take its place.
    remap_failed: bool | None = None
    #: What the driver wants done before the device is used again; None: nothing.
    recovery: str | None = None
    #: Critical errors (NVIDIA's Xid) since the last reading.
    xids: tuple[int, ...] = ()
    #: Why the clocks are lower than they could be, e.g. `hw_thermal_slowdown`.
    throttle: tuple[str, ...] = ()
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
