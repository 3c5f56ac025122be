"""What vendor libraries report of a device, as records. Pure. None: the device does not report it."""

from __future__ import annotations

from dataclasses import dataclass


class UnreachableError(Exception):
    """A device does not answer: it fell off the bus, needs a reset, or its driver is gone or hangs."""


@dataclass(frozen=True, kw_only=True)
class Details:
    """The settings of a device. Only an operator changes them."""

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
    """The state of a device at one moment."""

    used_bytes: int | None = None
    #: Ids, on the host, of the processes that compute on it.
    processes: tuple[int, ...] | None = None
    #: Uncorrected memory errors since the driver was loaded or the device was reset.
    uncorrected: int | None = None
    #: Memory goes out of use at the next reset (row remapping, page retirement).
    remap_pending: bool | None = None
    #: No spare memory was left to replace bad memory.
    remap_failed: bool | None = None
    #: The action that the driver asks for before the device is used again; None: no action.
    recovery: str | None = None
    #: Which processes may use it: `default` (several at a time), `exclusive_process`, `prohibited`, …
    compute_mode: str | None = None
    #: Critical errors (NVIDIA's Xid) since the last reading.
    xids: tuple[int, ...] = ()
    #: Why the clocks are lower than they could be, e.g. `hw_thermal_slowdown`.
    throttle: tuple[str, ...] = ()
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
