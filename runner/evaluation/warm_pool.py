"""Started containers, torch imported, that wait for jobs.

Owns the waiting containers, a few per slot. Each is used once or thrown away, never cleaned: it has not seen a byte of
any submission. Starting one costs its slot's cores two seconds of work. So containers are started only while the slot
is free; one that is still starting when a job arrives is thrown away, unless the job would have to start one anyway.
Slots that share devices or cores count as one here. Number, age and memory are bounded (`PoolBounds`). A container is
used only for the spec it was started with: GPU type, image, limits, devices, programs.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from runner.devices.quarantine import Quarantine
from runner.evaluation.container_spec import SLOT_LABEL
from sandbox.errors import SandboxError
from sandbox.host.engine import Container, DockerEngine
from sandbox.spec import SandboxSpec

#: A free slot that still has a waiting container gets its next one only after this: a secret job follows its public one
#: within a tenth of a second, and must not be timed beside a starting container.
IDLE_S = 1.0
#: From start until judge and worker have imported torch and are quiet.
SETTLE_S = 3.0
#: After a failed start, until the next try; a job that arrives meanwhile starts its own and hears what is wrong.
RETRY_S = 10.0
PARKED_LABEL = "kernel-runner.parked"
#: How soon a job that waits for a starting container notices its cancellation.
CANCEL_POLL_S = 0.1
#: The assumed memory of a container before one was measured: judge and worker with torch.
_USUAL_BYTES = 512 << 20

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class PoolBounds:
    """How many containers may wait, how long, and how much memory they may use together."""

    #: Per slot; 0: none.
    size: int
    max_age_s: float = math.inf
    #: Of all slots together; None: no bound.
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class _WarmContainer:
    slot: str
    spec: SandboxSpec
    box: Container
    started_s: float


@dataclass(kw_only=True)
class _SlotPool:
    """The containers of one slot. All fields belong to the lock."""

    spec: SandboxSpec
    boxes: list[_WarmContainer] = field(default_factory=list)
    #: A container is being started for this slot right now.
    starting: bool = False
    #: The slot runs a job, or a job waits for what is being started.
    busy: bool = False
    awaited: bool = False
    #: Not before this is the next container started, on the monotonic clock.
    not_before_s: float = 0.0


class WarmPool:
    """Threadsafe."""

    def __init__(self, engine: DockerEngine, quarantine: Quarantine, bounds: PoolBounds) -> None:
        self._engine = engine
        self._quarantine = quarantine
        self._bounds = bounds
        self._changed = threading.Condition()
        self._pools: dict[str, _SlotPool] = {}
        self._rivals: Mapping[str, frozenset[str]] = {}
        self._closed = False
        self._keeper: threading.Thread | None = None

    def arrange(self, rivals: Mapping[str, frozenset[str]]) -> None:
        """Set which slots exclude each other, because they share devices or cores."""
        with self._changed:
            self._rivals = rivals

    def adopt(self, bounds: PoolBounds) -> None:
        """Apply new bounds; a slot without waiting containers begins after its next job."""
        with self._changed:
            self._bounds = bounds
            thrown = [parked for place in self._pools.values() for parked in place.boxes[bounds.size :]]
            for place in self._pools.values():
                del place.boxes[bounds.size :]
            self._changed.notify_all()
        self._remove(thrown)

    def release(self, slot: str, spec: SandboxSpec) -> None:
        """The slot is free: let containers like `spec` wait for its next jobs."""
        if self._bounds.size == 0:
            return
        with self._changed:
            if self._closed:
                return
            place = self._pools.setdefault(slot, _SlotPool(spec=spec))
            place.spec = replace(spec, labels={PARKED_LABEL: slot, SLOT_LABEL: slot})
            place.busy = False
            # With none waiting, the next job would have to start one itself: better now.
            place.not_before_s = time.monotonic() + (IDLE_S if place.boxes else 0.0)
            for rival in self._beside(slot):
                rival.not_before_s = max(rival.not_before_s, time.monotonic() + IDLE_S)
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="warm-pool", daemon=True)
                self._keeper.start()
            self._changed.notify_all()

    def take(self, slot: str, spec: SandboxSpec, *, cancel: threading.Event) -> Container | None:
        """A waiting container of the slot that fits `spec`, or None; the slot is busy from now on.

        None also when `cancel` is set while a starting container is waited for.

        Job labels and the wall-clock limit are not compared: a waiting container cannot know the first, and the second
        is enforced from outside.
        """
        with self._changed:
            place = self._pools.get(slot)
            if place is None:
                return None
            place.busy = True
            if not place.boxes and _comparable(place.spec) == _comparable(spec):
                # What is being started is as good as what the job would start.
                place.awaited = True
                while place.starting and not cancel.is_set():
                    # The caller's event does not wake this condition.
                    self._changed.wait(CANCEL_POLL_S)
                place.awaited = False
            oldest_s = time.monotonic() - self._bounds.max_age_s
            fitting = [
                parked
                for parked in place.boxes
                if _comparable(parked.spec) == _comparable(spec) and parked.started_s >= oldest_s
            ]
            chosen = fitting[0] if fitting else None
            settled_s = time.monotonic() - SETTLE_S
            quiet = [parked for parked in place.boxes if parked is not chosen and parked.started_s <= settled_s]
            # Those that do not fit go too: the board's jobs have changed, and their memory is wanted.
            kept = [parked for parked in quiet if parked in fitting]
            thrown = [parked for parked in place.boxes if parked is not chosen and parked not in kept]
            place.boxes = kept
            for rival in self._beside(slot):
                thrown += [parked for parked in rival.boxes if parked.started_s > settled_s]
                rival.boxes = [parked for parked in rival.boxes if parked.started_s <= settled_s]
        self._remove(thrown)
        return None if chosen is None else chosen.box

    def counts(self) -> Mapping[str, int]:
        """How many containers wait for each slot."""
        with self._changed:
            return {slot: len(place.boxes) for slot, place in self._pools.items()}

    def close(self) -> None:
        """Remove every waiting container; none is started afterwards."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            keeper = self._keeper
        if keeper is not None:
            # Bounded, because starting a container is.
            keeper.join()
        with self._changed:
            left = [parked for place in self._pools.values() for parked in place.boxes]
            self._pools.clear()
        self._remove(left)

    def _remove(self, parked: Iterable[_WarmContainer]) -> None:
        for each in parked:
            remove(each.box, each.slot, self._quarantine)

    # -- the pool's thread ---------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            with self._changed:
                old, found = self._too_old(), self._next()
                while not old and found is None:
                    if self._closed:
                        return
                    self._changed.wait(self._pause_s())
                    old, found = self._too_old(), self._next()
                if found is not None:
                    slot, place = found
                    place.starting = True
                    spec = place.spec
            self._remove(old)
            if found is not None:
                self._start(slot, place, spec)

    def _too_old(self) -> list[_WarmContainer]:
        """Take containers that have waited too long out of their pools.

        Not beside a run, which the removal would disturb.
        """
        oldest_s = time.monotonic() - self._bounds.max_age_s
        old: list[_WarmContainer] = []
        for slot, place in self._pools.items():
            if not self._disturbs(slot, place):
                old += [parked for parked in place.boxes if parked.started_s < oldest_s]
                place.boxes = [parked for parked in place.boxes if parked.started_s >= oldest_s]
        return old

    def _next(self) -> tuple[str, _SlotPool] | None:
        """A slot that needs another container now; the one with the fewest, as memory may not suffice for all."""
        if self._closed:
            return None
        now = time.monotonic()
        ready = [
            (slot, place)
            for slot, place in self._pools.items()
            if self._wants(slot, place) and place.not_before_s <= now
        ]
        return min(ready, key=lambda found: len(found[1].boxes), default=None)

    def _wants(self, slot: str, place: _SlotPool) -> bool:
        return len(place.boxes) < self._bounds.size and not self._disturbs(slot, place) and self._has_room()

    def _disturbs(self, slot: str, place: _SlotPool) -> bool:
        """Whether a job runs on the slot's cores."""
        return place.busy or any(rival.busy for rival in self._beside(slot))

    def _has_room(self) -> bool:
        """Whether one more container fits into the memory bound."""
        budget = self._bounds.memory_bytes
        if budget is None:
            return True
        taken = [parked.box.memory_bytes() or _USUAL_BYTES for place in self._pools.values() for parked in place.boxes]
        # One that has just started has not imported torch yet, and will be as large as the largest.
        each = max((*taken, _USUAL_BYTES))
        return each * (len(taken) + 1) <= budget

    def _beside(self, slot: str) -> list[_SlotPool]:
        return [self._pools[name] for name in self._rivals.get(slot, ()) if name in self._pools]

    def _pause_s(self) -> float | None:
        """Seconds until a container may be due to start or to be removed; None: not before something changes."""
        due = [place.not_before_s for slot, place in self._pools.items() if self._wants(slot, place)]
        due += [
            # A little later: on the point it is not too old yet.
            parked.started_s + self._bounds.max_age_s + 0.001
            for slot, place in self._pools.items()
            if not self._disturbs(slot, place)
            for parked in place.boxes
        ]
        pause_s = max(0.0, min(due, default=math.inf) - time.monotonic())
        return None if math.isinf(pause_s) else min(pause_s, threading.TIMEOUT_MAX)

    def _start(self, slot: str, place: _SlotPool, spec: SandboxSpec) -> None:
        started_s = time.monotonic()
        box: Container | None = None
        try:
            box = self._engine.start(spec)
        except SandboxError as error:
            _log.warning("container_not_parked", slot=slot, error=str(error))
            if error.leftover is not None:
                self._quarantine.add(slot, error.leftover, error)
        except Exception:  # noqa: BLE001 logged; without this thread a job would wait for ever for what it starts
            _log.exception("container_not_parked", slot=slot)
        with self._changed:
            place.starting = False
            # A job that does without it has begun meanwhile: it must not import torch beside that job.
            rivalled = any(rival.busy for rival in self._beside(slot))
            unwanted = self._closed or rivalled or (place.busy and not place.awaited)
            if box is not None and not unwanted:
                place.boxes.append(_WarmContainer(slot=slot, spec=spec, box=box, started_s=started_s))
            place.not_before_s = time.monotonic() + (SETTLE_S if box is not None else RETRY_S)
            self._changed.notify_all()
        if box is not None and unwanted:
            remove(box, slot, self._quarantine)


def remove(box: Container, slot: str, quarantine: Quarantine) -> None:
    """Remove a container. One that cannot be removed puts its slot into quarantine, and changes no verdict."""
    try:
        box.close()
    except SandboxError as error:
        quarantine.add(slot, box, error)


def _comparable(spec: SandboxSpec) -> SandboxSpec:
    """A spec without the parts that may differ between a waiting container and the job that takes it."""
    return replace(spec, labels={}, limits=replace(spec.limits, wall_s=0))
