"""The health gate: reads a slot's devices before and after each run, and quarantines slots that are not fit.

Owns one thread per device for driver calls: a call that hangs blocks only that thread. `runner.devices.health` decides;
the gate reports the decision to the quarantine.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from runner.base.device_facts import Details, Reading, UnreachableError
from runner.base.gpu_types import GpuType
from runner.base.model import Device, Json, Slot
from runner.devices import processes
from runner.devices.health import XID_HOLD_S, Health, History, clock_deviations, is_grave, judge, spoiled
from runner.devices.quarantine import Quarantine
from runner.devices.sampler import Sampler
from runner.devices.vendors import SUPPORTED, Library

#: How long a device may take to answer. A healthy one takes milliseconds.
LIMIT_S: Final = 5.0
#: How long opening the library may take. Without persistence mode the driver then starts all devices of the host, which
#: takes seconds for each.
OPEN_LIMIT_S: Final = 30.0
#: How long the driver may take to free a device after its container is gone.
SETTLE_S: Final = 5.0
_SETTLE_POLL_S: Final = 0.1

T = TypeVar("T")


class DriverCalls:
    """Calls of the driver about one device, each in a thread of its own. Threadsafe; one call at a time."""

    def __init__(
        self, device: Device, opener: Callable[[], Library | None], *, limit_s: float, open_limit_s: float
    ) -> None:
        self._device = device
        self._opener = opener
        self._limit_s = limit_s
        self._open_limit_s = open_limit_s
        #: Held from before a call until it is over, however long that takes.
        self._free = threading.Lock()
        self._library: Library | None = None

    def ask(self, call: Callable[[Library, Device], T]) -> T:
        """The answer of the device.

        Raises:
            UnreachableError: it does not answer in time, or it is gone.
        """
        late = UnreachableError(f"it did not answer within {self._limit_s:g} s")
        # Another thread's call may be the one that opens the library.
        if not self._free.acquire(timeout=self._limit_s if self._library is not None else self._open_limit_s):
            raise late
        answers: list[T] = []
        errors: list[UnreachableError] = []
        opened, done = threading.Event(), threading.Event()

        def work() -> None:
            try:
                library = self._open()
                opened.set()
                answers.append(call(library, self._device))
            except UnreachableError as error:
                errors.append(error)
                # If the driver was loaded again, only a library that is opened again reaches it.
                self._close()
            except Exception as error:  # noqa: BLE001 - foreign code around a driver, which may raise anything
                errors.append(UnreachableError(f"{type(error).__name__}: {error}"))
                self._close()
            finally:
                self._free.release()
                done.set()
                opened.set()

        try:
            threading.Thread(target=work, name=f"device-{self._device.uuid}", daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise UnreachableError(f"nothing could ask it: {error}") from error
        if not opened.wait(self._open_limit_s):
            raise UnreachableError(f"its driver did not start within {self._open_limit_s:g} s")
        if not done.wait(self._limit_s):
            raise late
        if errors:
            raise errors[0]
        return answers[0]

    def close(self) -> None:
        """Close the library, unless a call hangs in it."""
        if self._free.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._free.release()

    def _open(self) -> Library:
        if self._library is None:
            self._library = self._opener()
        if self._library is None:
            raise UnreachableError("its driver is gone")
        return self._library

    def _close(self) -> None:
        library, self._library = self._library, None
        if library is not None:
            with suppress(Exception):
                library.close()


@dataclass
class _Watched:
    """The gate's knowledge of a device since the start of the daemon."""

    calls: DriverCalls
    #: None: it has not answered yet.
    details: Details | None = None
    idle_bytes: int | None = None
    residents: frozenset[int] | None = None
    #: When each grave error was reported, on the gate's clock.
    xids: deque[tuple[float, int]] = field(default_factory=deque)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The state of a slot's devices, in their order. A device that did not answer has no reading."""

    readings: tuple[Reading | None, ...]
    health: Health

    @property
    def xids(self) -> tuple[int, ...]:
        """How many critical errors the driver reported of each device, without those that programs cause."""
        return tuple(0 if reading is None else sum(map(is_grave, reading.xids)) for reading in self.readings)


class HealthGate:
    """Threadsafe."""

    def __init__(
        self,
        quarantine: Quarantine,
        *,
        type_of: Callable[[Slot], GpuType],
        openers: Mapping[str, Callable[[], Library | None]] | None = None,
        limit_s: float = LIMIT_S,
        open_limit_s: float = OPEN_LIMIT_S,
        settle_s: float = SETTLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quarantine = quarantine
        #: The GPU type whose clock policy applies to a slot.
        self._type_of = type_of
        self._openers = openers or {name: support.open for name, support in SUPPORTED.items()}
        self._limit_s = limit_s
        self._open_limit_s = open_limit_s
        self._settle_s = settle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}

    def inspect(self, slot: Slot) -> Inspection:
        """Inspect the devices of an idle slot, and report to the quarantine.

        Memory and processes of an earlier run get a few seconds to go.
        """
        until = self._clock() + self._settle_s
        state = self._look(slot)
        xids = [() if reading is None else reading.xids for reading in state.readings]
        while not state.health.fit and None not in state.readings and self._clock() < until:
            time.sleep(_SETTLE_POLL_S)
            state = self._look(slot)
            # The driver reports each error only once.
            xids = [
                device_xids + (() if reading is None else reading.xids)
                for device_xids, reading in zip(xids, state.readings, strict=True)
            ]
        self._tell(slot, state.health)
        readings = zip(state.readings, xids, strict=True)
        return replace(
            state,
            readings=tuple(
                None if reading is None else replace(reading, xids=device_xids) for reading, device_xids in readings
            ),
        )

    def spoiled(self, slot: Slot, before: Inspection, after: Inspection) -> str | None:
        """Why the result of a run between two inspections does not count; None: it counts."""
        for device, earlier, later in zip(slot.devices, before.readings, after.readings, strict=True):
            if later is None:
                return f"device {device.uuid} was lost during the run: {'; '.join(after.health.reasons)}"
            happened = None if earlier is None else spoiled(earlier, later)
            if happened is not None:
                return f"device {device.uuid}: {happened} during the run"
        return None

    @contextmanager
    def sampling(
        self, slot: Slot, every_s: float | None, *, on_round: Callable[[Sequence[Reading]], None] = lambda _: None
    ) -> Iterator[Sampler | None]:
        """Sample the slot's devices while the block runs; None: sampling is off. `on_round`: as the sampler's."""
        if every_s is None or not slot.devices:
            yield None
            return
        sampler = Sampler(
            [self._sampling(device) for device in slot.devices],
            every_s=every_s,
            avoid=slot.cpus,
            on_round=on_round,
            clock_deviations=partial(clock_deviations, gpu=self._type_of(slot)),
        )
        with sampler:
            yield sampler

    def metadata(self, slot: Slot, before: Inspection, after: Inspection, sampler: Sampler | None) -> list[Json]:
        """The devices of a run for `system_info.runner.devices`."""
        described: list[Json] = []
        for number, device in enumerate(slot.devices):
            details = self._watch(device).details
            one: dict[str, Any] = {
                "uuid": device.uuid,
                "name": device.name,
                "pci_address": device.pci_address,
                "numa_node": device.numa_node,
                **({} if device.partition is None else {"partition": device.partition}),
                **({} if details is None else asdict(details)),
                "before": _shown(before.readings[number]),
                "after": _shown(after.readings[number]),
            }
            if sampler is not None:
                one["during"] = sampler.summary(number)
            described.append(one)
        return described

    def close(self) -> None:
        """Close the libraries."""
        with self._lock:
            watched = list(self._watched.values())
        for each in watched:
            each.calls.close()

    def _sampling(self, device: Device) -> Callable[[], Reading]:
        calls = self._watch(device).calls
        return lambda: calls.ask(lambda library, each: library.sample(each))

    def _watch(self, device: Device) -> _Watched:
        with self._lock:
            if device.uuid not in self._watched:
                opener = self._openers[device.vendor]
                calls = DriverCalls(device, opener, limit_s=self._limit_s, open_limit_s=self._open_limit_s)
                self._watched[device.uuid] = _Watched(calls=calls)
            return self._watched[device.uuid]

    def _look(self, slot: Slot) -> Inspection:
        readings: list[Reading | None] = []
        reasons: list[str] = []
        for device in slot.devices:
            watched = self._watch(device)
            try:
                watched.details, reading = watched.calls.ask(
                    lambda library, each: (library.details(each), library.read(each))
                )
            except UnreachableError as error:
                readings.append(None)
                health = Health(reasons=(str(error),))
            else:
                readings.append(reading)
                health = judge(reading, self._remember(watched, reading), self._type_of(slot).clocks)
            reasons += [f"device {device.uuid}: {reason}" for reason in health.reasons]
        return Inspection(readings=tuple(readings), health=Health(reasons=tuple(reasons)))

    def _remember(self, watched: _Watched, reading: Reading) -> History:
        with self._lock:
            now = self._clock()
            watched.xids += [(now, xid) for xid in reading.xids if is_grave(xid)]
            while watched.xids and watched.xids[0][0] <= now - XID_HOLD_S:
                watched.xids.popleft()
            if watched.residents is None:
                watched.residents = frozenset(reading.processes or ())
            if reading.used_bytes is not None:
                before = reading.used_bytes if watched.idle_bytes is None else watched.idle_bytes
                watched.idle_bytes = min(reading.used_bytes, before)
            strangers = [pid for pid in reading.processes or () if pid not in watched.residents]
            return History(
                idle_bytes=watched.idle_bytes,
                residents=watched.residents,
                xids=tuple(xid for _, xid in watched.xids),
                owners={pid: owner for pid in strangers if (owner := processes.owner_of(pid)) is not None},
            )

    def _tell(self, slot: Slot, health: Health) -> None:
        if not health.fit:
            why = "; ".join(health.reasons)
            self._quarantine.quarantine_devices(slot.name, why, mended=lambda: self._look(slot).health.fit)


def _shown(reading: Reading | None) -> Json | None:
    return None if reading is None else asdict(reading)
