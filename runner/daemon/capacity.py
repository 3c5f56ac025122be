"""Which slots are free, what to ask the queue for, and which slot gets which job.

Owns the rule which slots can run at the same time. A slot of eight devices is free when no slot inside it is busy, and
the other way round. Talks to no database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from runner.base.model import Job, Slot
from runner.daemon.interfaces import SlotHandle
from runner.gpu_types import Registry


@dataclass(frozen=True, kw_only=True)
class ClaimRequest:
    """A request for jobs."""

    #: GPU types, aliases included, and how many slots are free for each; the least recently served first.
    slots: Mapping[str, int]
    #: The most jobs to claim; None: one for each slot.
    at_most: int | None
    #: Types of which only degraded slots are free: no ranked job may be claimed for them.
    unranked: frozenset[str] = frozenset()


NO_REQUEST: Final = ClaimRequest(slots={}, at_most=None)


class Capacity:
    """The slots of a host. Only the claiming thread changes it; other threads may ask whether a slot is free."""

    def __init__(
        self,
        workers: Sequence[SlotHandle],
        registry: Registry,
        *,
        quarantined: Callable[[], Collection[str]] = frozenset,
        degraded: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._workers = tuple(workers)
        self._registry = registry
        #: Names of quarantined slots.
        self._quarantined = quarantined
        #: Names of slots on which nothing ranked runs.
        self._degraded = degraded
        self._rivals = {
            one.slot.name: tuple(other for other in workers if other is not one and one.slot.excludes(other.slot))
            for one in workers
        }
        #: By name of a slot: the names a job may use for it, the slots that share its cores or devices, and those
        #: inside it.
        self._names = {one.slot.name: (one.slot.gpu_type, *registry.get(one.slot.gpu_type).aliases) for one in workers}
        self._sharing = {
            name: frozenset((name, *(rival.slot.name for rival in rivals))) for name, rivals in self._rivals.items()
        }
        self._devices = {
            one.slot.name: frozenset(
                (one.slot.name, *(r.slot.name for r in self._rivals[one.slot.name] if _around(one.slot, r.slot)))
            )
            for one in workers
        }
        #: Slots that get no job for now, because a larger one waits for them.
        self._withheld: frozenset[str] = frozenset()
        #: GPU types and aliases in the order in which they last got a slot.
        self._served: dict[str, None] = {}

    @property
    def gpu_types(self) -> frozenset[str]:
        """Every name that a job may use for one of the slots."""
        return frozenset(name for names in self._names.values() for name in names)

    def free(self) -> list[SlotHandle]:
        """Slots that could start a job now."""
        quarantined = self._quarantined()
        return [
            worker
            for worker in self._workers
            if not worker.busy
            and worker.slot.name not in self._withheld
            and not self._barred(worker, quarantined)
            and not any(rival.busy for rival in self._rivals[worker.slot.name])
        ]

    def usable(self) -> bool:
        """Whether any slot is used at all, busy or not."""
        quarantined = self._quarantined()
        return not all(self._barred(worker, quarantined) for worker in self._workers)

    def ranks(self, worker: SlotHandle) -> bool:
        """Whether ranked jobs may run there: neither its devices nor those of a slot inside it are degraded."""
        return self._ranks(worker, self._degraded())

    def _ranks(self, worker: SlotHandle, degraded: Collection[str]) -> bool:
        return self._devices[worker.slot.name].isdisjoint(degraded)

    def _barred(self, worker: SlotHandle, quarantined: Collection[str]) -> bool:
        """Whether a quarantined slot shares cores or devices with this one."""
        return not self._sharing[worker.slot.name].isdisjoint(quarantined)

    def request(self) -> ClaimRequest:
        """What to ask for now; one job at a time where slots exclude each other.

        Degraded slots are included when no other slot of their type is free; only unranked jobs are asked for then.
        """
        free, degraded = self.free(), self._degraded()
        ranking = [worker for worker in free if self._ranks(worker, degraded)]
        types = {worker.slot.gpu_type for worker in ranking}
        others = [worker for worker in free if worker.slot.gpu_type not in types]
        slots: dict[str, int] = {}
        for worker in (*ranking, *others):
            for name in self._names[worker.slot.name]:
                slots[name] = slots.get(name, 0) + 1
        names = {worker.slot.name for worker in free}
        rivalry = any(len(self._sharing[name] & names) > 1 for name in names)
        # Types that share slots take turns; else the jobs of one type could block all jobs of the other.
        served = {name: number for number, name in enumerate(self._served)}
        ordered = dict(sorted(slots.items(), key=lambda entry: served.get(entry[0], -1)))
        return ClaimRequest(slots=ordered, at_most=1 if rivalry else None, unranked=frozenset(self.names(others)))

    def assign(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, SlotHandle]]:
        """A free slot for each job; the caller must make it busy before it asks for the next.

        Jobs that failed on a slot choose first and avoid that slot. Unranked jobs go to degraded slots. Otherwise a job
        gets the slot that blocks the fewest others: of eight, one whose neighbours are busy already.
        """
        free, degraded = self.free(), self._degraded()
        for job in sorted(jobs, key=lambda job: job.avoid_slot is None):
            self._served.pop(job.gpu_type, None)
            self._served[job.gpu_type] = None
            gpu_type = self._registry.get(job.gpu_type).name
            fitting = [worker for worker in free if worker.slot.gpu_type == gpu_type]
            chosen = min(fitting, key=partial(self._reluctance, job=job, free=free, degraded=degraded))
            yield job, chosen
            free = self.beside(free, chosen)

    def _reluctance(
        self, worker: SlotHandle, *, job: Job, free: Sequence[SlotHandle], degraded: Collection[str]
    ) -> tuple[bool, bool, bool, int]:
        """How badly a slot suits a job; the smallest is the best."""
        ranks = self._ranks(worker, degraded)
        others = self._sharing[worker.slot.name] & {each.slot.name for each in free}
        # A device may have become degraded since the claim: then no better slot is left.
        return job.mode.ranked and not ranks, worker.slot.name == job.avoid_slot, ranks, len(others)

    def beside(self, free: Sequence[SlotHandle], taken: SlotHandle) -> list[SlotHandle]:
        """Those of the free slots that can start a job beside the taken one."""
        return [worker for worker in free if worker.slot.name not in self._sharing[taken.slot.name]]

    # -- reservations --------------------------------------------------------------------------------------------

    def blocked(self) -> list[SlotHandle]:
        """Larger slots that wait for smaller ones inside them: a stream of small jobs would starve them.

        Without types that another slot could serve now, and without degraded slots: the waiting job may need neither.
        """
        outer = [worker for worker in self._workers if len(self._devices[worker.slot.name]) > 1]
        if not outer:
            return []
        served = {worker.slot.gpu_type for worker in self.free()}
        quarantined = self._quarantined()
        return [
            worker
            for worker in outer
            if not worker.busy
            and not self._barred(worker, quarantined)
            and worker.slot.gpu_type not in served
            and self.ranks(worker)
            and any(rival.busy and _around(worker.slot, rival.slot) for rival in self._rivals[worker.slot.name])
        ]

    def within(self, outer: Sequence[SlotHandle]) -> list[SlotHandle]:
        """The slots inside these."""
        return [
            worker
            for worker in self._workers
            if any(_around(one.slot, worker.slot) for one in outer if worker is not one)
        ]

    def names(self, workers: Sequence[SlotHandle]) -> list[str]:
        """Every name that a job may use for one of these."""
        return sorted({name for worker in workers for name in self._names[worker.slot.name]})

    def cheapest(self, workers: Sequence[SlotHandle], gpu_type: str) -> SlotHandle | None:
        """Of these, the slot of a type that waits for the fewest runs."""
        name = self._registry.get(gpu_type).name
        return min(
            (worker for worker in workers if worker.slot.gpu_type == name),
            key=lambda worker: sum(rival.busy for rival in self._rivals[worker.slot.name]),
            default=None,
        )

    def withhold_for(self, worker: SlotHandle) -> None:
        """Let a slot become free: slots that exclude it get no more jobs."""
        self._withheld = frozenset(rival.slot.name for rival in self._rivals[worker.slot.name])

    def withhold_nothing(self) -> None:
        """Let every free slot get jobs again."""
        self._withheld = frozenset()


def _around(outer: Slot, inner: Slot) -> bool:
    """Whether a slot has all devices of another and more."""
    return {device.uuid for device in inner.devices} < {device.uuid for device in outer.devices} and bool(inner.devices)
