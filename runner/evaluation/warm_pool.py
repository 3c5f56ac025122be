"""Started containers, torch imported, that wait for jobs.

Owns the waiting containers, a few per slot. None has seen a byte of any submission. A container waits only once its
judge has said that all is imported and quiet. A container is used only for the spec it was started with: GPU type,
image, limits, devices, programs.

Importing costs one core more than a second of work. Where the host has as many cores that no slot uses as a slot has,
containers import on those, beside jobs. They get the slot's cores, on which judge and worker start, when no submission
runs there. On other hosts containers are started only while no submission runs on the slot, as many at a time as it has
cores. If a job finds none waiting, one for the next job is started beside its own. Thus a slot that is never free gets
some, too. A container on the slot's cores that is still starting when a job takes another one is removed.

A used container is thrown away, or waits IDLE_S for what may follow in it: the next group of its batch, or the secret
run of its submission. For that one init removes what the last one left, and starts new processes. Any other job gets
another container.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from runner.base.logs import get_logger
from runner.devices.quarantine import Quarantine
from runner.evaluation.container_spec import SLOT_LABEL, ContainerOwner
from runner.evaluation.leftovers import keep_out, remove
from sandbox.errors import EngineRefused, NotThere, SandboxError
from sandbox.host.engine import Container, DockerEngine
from sandbox.policy.checks import GVISOR
from sandbox.spec import DeviceDriver, SandboxSpec

#: A free slot that still has a waiting container gets its next one only after this. A secret job follows its public one
#: within a tenth of a second; no container must start beside its timed calls.
IDLE_S = 1.0
#: The longest time until judge and worker have imported torch and are quiet. One that takes longer is thrown away.
PREPARE_S = 120.0
#: Requests that a container serves at most.
MOST_REQUESTS = 32
#: After a failed start, until the next try; a job that arrives meanwhile starts its own and gets the error.
RETRY_S = 10.0
#: How soon a job that waits, here or for a build, notices its cancellation.
CANCEL_POLL_S = 0.1
WARM_LABEL = "kernel-runner.warm"

_log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class _WarmContainer:
    slot: str
    spec: SandboxSpec
    container: Container
    #: Who has used it; None: it is unused.
    owner: ContainerOwner | None = None


@dataclass(kw_only=True)
class _SlotPool:
    """The containers of one slot. All fields belong to the lock."""

    spec: SandboxSpec
    containers: list[_WarmContainer] = field(default_factory=list)
    #: A used one.
    kept: _WarmContainer | None = None
    #: How many containers are being started for this slot right now.
    starting: int = 0
    #: A submission runs on the slot, or a job waits for what is being started.
    busy: bool = False
    awaited: bool = False
    #: The job that waits found nothing being started.
    asked: bool = False
    #: Not before this is the next container started, on the monotonic clock.
    not_before_s: float = 0.0


class WarmPool:
    """Threadsafe."""

    def __init__(self, engine: DockerEngine, quarantine: Quarantine, *, size: int) -> None:
        """`size`: how many containers wait per slot."""
        self._engine = engine
        self._quarantine = quarantine
        self._size = size
        self._changed = threading.Condition()
        self._pools: dict[str, _SlotPool] = {}
        #: Cores that no slot uses.
        self._spare_cpus: tuple[int, ...] = ()
        self._closed = False
        self._keeper: threading.Thread | None = None
        self._starters: set[threading.Thread] = set()

    def arrange(self, spare_cpus: tuple[int, ...]) -> None:
        """Set the cores that no slot uses; call it before anything else."""
        self._spare_cpus = spare_cpus

    def release(self, slot: str, spec: SandboxSpec) -> None:
        """The slot is free: let containers like `spec` wait for its next jobs."""
        if self._size == 0:
            return
        with self._changed:
            if self._closed:
                return
            place = self._pools.setdefault(slot, _SlotPool(spec=spec))
            place.spec = replace(spec, labels={WARM_LABEL: slot, SLOT_LABEL: slot})
            place.busy = False
            # With none waiting, the next job would have to start one itself: better now.
            place.not_before_s = time.monotonic() + (IDLE_S if place.containers or place.kept else 0.0)
            if self._keeper is None:
                self._keeper = _spawn("warm-pool", self._keep)
            self._changed.notify_all()

    def put_away(self, slot: str, spec: SandboxSpec, container: Container, *, owner: ContainerOwner | None) -> None:
        """Keep a used container for the owner's next request, if it is open; else remove it."""
        kept = _WarmContainer(slot=slot, spec=spec, container=container, owner=owner)
        if owner is not None and container.is_open and container.requests < MOST_REQUESTS:
            with self._changed:
                place = self._pools.get(slot)
                if place is not None and not self._closed:
                    place.kept = kept
                    return
        self._remove([kept])

    def drop(self, slot: str) -> None:
        """Remove the slot's used container, if one is kept."""
        with self._changed:
            place = self._pools.get(slot)
            kept = None if place is None else place.kept
            if place is not None:
                place.kept = None
        self._remove([kept] if kept is not None else [])

    def replace_last(self, slot: str) -> None:
        """All processes of the slot's submission are dead: if no container waits, start the next ones now.

        The slot's job is not over, so `release` follows.
        """
        with self._changed:
            place = self._pools.get(slot)
            if place is not None and not place.containers:
                place.busy = False
                self._changed.notify_all()

    def take(
        self, slot: str, spec: SandboxSpec, *, cancel: threading.Event, owner: ContainerOwner | None = None
    ) -> Container | None:
        """A waiting container of the slot that fits `spec`, or None; the slot is busy from now on.

        A used one is for its owner alone, and only as the next one of the slot. None also when `cancel` is set while a
        starting container is waited for.

        Job labels and the wall-clock limit are not compared: a waiting container cannot know the first, and the second
        is enforced from outside.
        """
        with self._changed:
            place = self._pools.get(slot)
            if place is None:
                return None
            place.busy = True
            kept, place.kept = place.kept, None
            if kept is not None:
                place.not_before_s = 0.0
        if kept is not None:
            if owner is not None and kept.owner == owner and _comparable(kept.spec) == _comparable(spec):
                return kept.container
            self._remove([kept])
        with self._changed:
            if not place.containers and _comparable(place.spec) == _comparable(spec):
                # A container that is starting is ready sooner than one that the job would start.
                place.awaited = True
                may_ask = self._keeper is not None and not self._closed
                place.asked = may_ask and not place.starting and self._count(place) > 0 and self._is_due(place)
                self._changed.notify_all()
                while (place.starting or place.asked) and not self._closed and not cancel.is_set():
                    # The caller's event does not wake this condition.
                    self._changed.wait(CANCEL_POLL_S)
                place.awaited = place.asked = False
            fitting = [warm for warm in place.containers if _comparable(warm.spec) == _comparable(spec)]
            chosen = fitting[0] if fitting else None
            # Those that do not fit go too: the board's jobs have changed, and their memory is wanted.
            thrown = [warm for warm in place.containers if warm not in fitting]
            place.containers = fitting[1:]
            self._changed.notify_all()
        self._remove(thrown)
        return None if chosen is None else chosen.container

    def counts(self) -> Mapping[str, int]:
        """How many containers wait for each slot."""
        with self._changed:
            return {slot: len(place.containers) for slot, place in self._pools.items()}

    def close(self) -> None:
        """Remove every waiting container; none is started afterwards."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            keeper = self._keeper
        if keeper is not None:
            # Bounded, because starting a container is.
            keeper.join()
        for starter in list(self._starters):
            starter.join()
        with self._changed:
            left = [warm for place in self._pools.values() for warm in (*place.containers, place.kept) if warm]
            self._pools.clear()
        self._remove(left)

    def _remove(self, warm: Iterable[_WarmContainer]) -> None:
        for each in warm:
            remove(each.container, each.slot, self._quarantine)

    # -- the pool's thread ---------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            with self._changed:
                while (due := self._next()) is None:
                    if self._closed:
                        return
                    self._changed.wait(self._pause_s())
                self._begin(*due)

    def _begin(self, slot: str, place: _SlotPool) -> None:
        """Start containers in a thread of their own: those of other slots do not wait for their imports.

        A used one that has waited in vain goes first.
        """
        place.asked = False
        place.starting = max(0, self._count(place))
        if slot in self._quarantine.reasons():
            # It would fail, or be one more container on a device that is not fit.
            place.starting, place.not_before_s = 0, time.monotonic() + RETRY_S
        kept = None
        if not place.busy:
            kept, place.kept = place.kept, None
        if not place.starting and kept is None:
            self._changed.notify_all()
            return
        starter = _spawn(f"warm-pool {slot}", self._start, slot, place, place.spec, place.starting, kept)
        if starter is None:
            place.kept, place.starting, place.not_before_s = kept, 0, time.monotonic() + RETRY_S
            self._changed.notify_all()
        else:
            # It waits for the lock before it takes itself out.
            self._starters.add(starter)

    def _next(self) -> tuple[str, _SlotPool] | None:
        """A slot that needs another container now; the one with the fewest."""
        if self._closed:
            return None
        ready = [
            (slot, place)
            for slot, place in self._pools.items()
            if (place.asked or self._wants(place)) and self._is_due(place)
        ]
        return min(ready, key=lambda entry: (not entry[1].asked, len(entry[1].containers)), default=None)

    def _wants(self, place: _SlotPool) -> bool:
        if place.starting:
            return False
        idle = not place.busy or bool(self._import_cpus(place.spec))
        return (idle and self._count(place) > 0) or (not place.busy and place.kept is not None)

    def _import_cpus(self, spec: SandboxSpec) -> tuple[int, ...]:
        """Where containers like this import, on as many cores as libraries shall count; empty: on the slot's."""
        count = len(spec.limits.cpus)
        # Devices that NVIDIA's runtime added behind the engine's back may be lost when the engine changes a container.
        keeps_devices = spec.devices is None or spec.devices.driver is not DeviceDriver.NVIDIA
        usable = spec.boot.preload and spec.runtime not in GVISOR and keeps_devices and len(self._spare_cpus) >= count
        return self._spare_cpus[:count] if usable else ()

    def _wait_for_cores(self, place: _SlotPool) -> None:
        """Wait until an imported container may use the slot's cores: none runs there, or follows at once."""
        with self._changed:
            while not (self._closed or place.awaited or (not place.busy and self._is_due(place))):
                self._changed.wait(CANCEL_POLL_S)

    def _is_due(self, place: _SlotPool) -> bool:
        return place.not_before_s <= time.monotonic()

    def _count(self, place: _SlotPool) -> int:
        """How many containers to start at a time: as many as are missing and have a core each."""
        return min(self._size - len(place.containers), len(place.spec.limits.cpus))

    def _pause_s(self) -> float | None:
        """Seconds until a container may be due to start; None: not before something changes."""
        due = [place.not_before_s for place in self._pools.values() if self._wants(place)]
        pause_s = max(0.0, min(due, default=math.inf) - time.monotonic())
        return None if math.isinf(pause_s) else pause_s

    def _start(self, slot: str, place: _SlotPool, spec: SandboxSpec, count: int, kept: _WarmContainer | None) -> None:
        """Start so many containers at once; they wait together, when all of them are quiet."""
        if kept is not None:
            self._remove([kept])
        containers: list[_WarmContainer] = []
        name = f"warm-pool {slot} one"
        for starter in [_spawn(name, self._start_one, slot, place, spec, containers) for _ in range(count)]:
            if starter is not None:
                starter.join()
        with self._changed:
            unwanted = self._is_unwanted(place)
            if not unwanted:
                place.containers += containers
            place.starting = 0
            place.not_before_s = time.monotonic() + (0.0 if containers or not count else RETRY_S)
            self._starters.discard(threading.current_thread())
            self._changed.notify_all()
        if unwanted:
            self._remove(containers)

    def _start_one(self, slot: str, place: _SlotPool, spec: SandboxSpec, containers: list[_WarmContainer]) -> None:
        imported = False

        def wait_for_cores() -> None:
            nonlocal imported
            imported = True
            self._wait_for_cores(place)

        container = None
        try:
            container = self._engine.start(
                replace(spec, import_cpus=self._import_cpus(spec)), wait_for_cores=wait_for_cores
            )
            if container.wait_prepared(PREPARE_S, stop=lambda: self._is_unwanted(place)):
                containers.append(_WarmContainer(slot=slot, spec=spec, container=container))
                return
        except SandboxError as error:
            _log.warning("warm_container_not_started", slot=slot, error=str(error))
            keep_out(slot, error.leftover, error, self._quarantine)
            if imported and isinstance(error, EngineRefused) and not isinstance(error, NotThere):
                # Perhaps this engine cannot change a container's cores. Earlier it has only refused the container, and
                # one that another tool has removed says nothing.
                self._spare_cpus = ()
        except Exception:  # noqa: BLE001 logged; the container is removed
            _log.exception("warm_container_not_started", slot=slot)
        if container is not None:
            remove(container, slot, self._quarantine)

    def _is_unwanted(self, place: _SlotPool) -> bool:
        """Whether a job has begun that does without what is being started: nothing may be imported beside it."""
        return self._closed or (place.busy and not place.awaited)


def _spawn(name: str, target: Callable[..., object], *args: object) -> threading.Thread | None:
    """Start a thread; None: the process may have no more now, and a job must not wait for what it would do."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        _log.warning("warm_container_not_started", thread=name, error=str(error))
        return None
    return thread


def _comparable(spec: SandboxSpec) -> SandboxSpec:
    """A spec without the parts that may differ between a waiting container and the job that takes it."""
    return replace(spec, labels={}, limits=replace(spec.limits, wall_s=0))
