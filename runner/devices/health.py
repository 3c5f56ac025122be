"""Whether a device is fit to measure on: a decision over recorded facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from runner.base.device_facts import Reading
from runner.base.gpu_types import ClockPolicy, GpuType
from runner.devices.vendors import SUPPORTED

#: So much more memory than when it was idle may be in use on a device without counting as a leftover of a run.
SLACK_BYTES: Final = 256 << 20
#: Xids that a program causes in its own context, and that end with it (NVIDIA, "XID Errors" and Xid catalog:
#: application errors, preemptive removal, robust channel errors, invalid streams, forbidden access to peers). A
#: submission that crashes must not quarantine the device.
PROGRAM_XIDS: Final = frozenset({8, 11, 13, 25, 31, 32, 43, 45, 68, 69, 80, 94, 109, 137})
#: Xids that only report pages and rows that went out of use, about which the counters are more precise, or tests of the
#: board's controller.
REPORTING_XIDS: Final = frozenset({63, 92, 106, 107, 121})
#: How long a device is not used after any other Xid, if nothing else is wrong with it.
XID_HOLD_S: Final = 120.0
#: A clock may differ from the demand by the larger of this part of it and NVIDIA's step between two clocks.
CLOCK_SLACK: Final = 0.01
CLOCK_SLACK_MHZ: Final = 15.0


@dataclass(frozen=True, kw_only=True)
class Health:
    """Why nothing may run on a device. A fit one has no reasons."""

    reasons: tuple[str, ...] = ()

    @property
    def fit(self) -> bool:
        """Whether runs may begin."""
        return not self.reasons


@dataclass(frozen=True, kw_only=True)
class History:
    """Earlier facts that a reading is compared with."""

    #: The least memory that was in use in any reading.
    idle_bytes: int | None = None
    #: Ids of processes that computed there before the first run, e.g. a monitor.
    residents: frozenset[int] = frozenset()
    #: Critical errors of the last XID_HOLD_S.
    xids: tuple[int, ...] = ()
    #: Descriptions of the processes that are not residents.
    owners: Mapping[int, str] = field(default_factory=dict)


def is_grave(xid: int) -> bool:
    """Whether a critical error concerns the device, and not only a program that ran on it."""
    return xid not in PROGRAM_XIDS | REPORTING_XIDS


def judge(reading: Reading, history: History, clocks: ClockPolicy) -> Health:
    """Whether runs may begin on an idle device. It may have low clocks: only reasons for low clocks count."""
    grave = [xid for xid in history.xids if is_grave(xid)]
    left = [
        f"{pid} ({history.owners[pid]})" if pid in history.owners else str(pid)
        for pid in reading.processes or ()
        if pid not in history.residents
    ]
    over = (reading.used_bytes or 0) - (history.idle_bytes or 0)
    reasons = [
        f"the driver asks to {reading.recovery}" if reading.recovery else "",
        "memory rows could not be remapped: have the device replaced" if reading.remap_failed else "",
        f"its compute mode is {reading.compute_mode}, but judge and worker use it together; set it to default "
        "(nvidia-smi --compute-mode=DEFAULT)"
        if reading.compute_mode not in {None, "default"}
        else "",
        f"Xid {', '.join(map(str, dict.fromkeys(grave)))} within {XID_HOLD_S:g} s" if grave else "",
        f"processes of no known job compute on it: {', '.join(left)}" if left else "",
        f"{over >> 20} MiB more in use than when it is idle"
        if history.idle_bytes is not None and over > SLACK_BYTES
        else "",
        f"{reading.uncorrected} memory errors could not be corrected; reset the device" if reading.uncorrected else "",
        "memory is to be remapped; reset the device" if reading.remap_pending else "",
        *(f"its clocks are held down: {name}" for name in reading.throttle if name in clocks.set_aside),
    ]
    return Health(reasons=tuple(filter(None, reasons)))


def clock_deviations(reading: Reading, gpu: GpuType) -> tuple[str, ...]:
    """How a reading deviates from the clocks that a GPU type demands of a device at work; empty: it does not.

    `sm_clock_off` and `memory_clock_off`: by more than 1 % and 15 MHz. Where a demand is an upper limit (AMD), devices
    lower their clocks between calls, so only higher clocks are off. `…_unknown`: the device does not report the clock.
    """
    support = SUPPORTED.get(gpu.vendor)
    limit = support is not None and support.clock_is_limit
    deviations: list[str] = []
    for name, demanded, is_now in (
        ("sm_clock", gpu.clocks.sm_mhz, reading.sm_clock_mhz),
        ("memory_clock", gpu.clocks.memory_mhz, reading.memory_clock_mhz),
    ):
        if demanded is None:
            continue
        if is_now is None:
            deviations.append(f"{name}_unknown")
            continue
        above = is_now - demanded
        if (above if limit else abs(above)) > max(CLOCK_SLACK * demanded, CLOCK_SLACK_MHZ):
            deviations.append(f"{name}_off")
    return tuple(deviations)


def spoiled(before: Reading, after: Reading) -> str | None:
    """The event on a device during a run that spoils the run's result; None: no such event."""
    grown = (after.uncorrected or 0) - (before.uncorrected or 0)
    if before.uncorrected is not None and grown > 0:
        return f"{grown} memory errors could not be corrected"
    grave = [xid for xid in after.xids if is_grave(xid)]
    return f"the driver reported Xid {', '.join(map(str, dict.fromkeys(grave)))}" if grave else None
