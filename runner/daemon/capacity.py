"""Which slots are free, what to ask the queue for, and which slot gets which job. Talks to no database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from runner.base.gpu_types import Registry
from runner.base.model import Job
from runner.daemon.interfaces import SlotHandle


@dataclass(frozen=True, kw_only=True)
class ClaimRequest:
    """A request for jobs."""

    #: GPU types, aliases included, and how many slots are free for each.
    slots: Mapping[str, int]
    #: Types of which only degraded slots are free: no ranked job may be claimed for them.
    unranked: frozenset[str] = frozenset()


NO_REQUEST: Final = ClaimRequest(slots={})


class Capacity:
    """The slots of a host. Threadsafe."""

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
        #: By name of a slot: the names a job may use for it.
        self._names = {one.slot.name: (one.slot.gpu_type, *registry.get(one.slot.gpu_type).aliases) for one in workers}

    @property
    def gpu_types(self) -> frozenset[str]:
        """Every name that a job may use for one of the slots."""
        return frozenset(name for names in self._names.values() for name in names)

    def free(self) -> list[SlotHandle]:
        """Slots that could start a job now."""
        quarantined = self._quarantined()
        return [worker for worker in self._workers if not worker.busy and worker.slot.name not in quarantined]

    def usable(self) -> bool:
        """Whether any slot is used at all, busy or not."""
        quarantined = self._quarantined()
        return not all(worker.slot.name in quarantined for worker in self._workers)

    def request(self) -> ClaimRequest:
        """What to ask for now.

        Degraded slots are included when no other slot of their type is free; only unranked jobs are asked for then.
        """
        free, degraded = self.free(), self._degraded()
        ranking = [worker for worker in free if worker.slot.name not in degraded]
        types = {worker.slot.gpu_type for worker in ranking}
        others = [worker for worker in free if worker.slot.gpu_type not in types]
        slots: dict[str, int] = {}
        for worker in (*ranking, *others):
            for name in self._names[worker.slot.name]:
                slots[name] = slots.get(name, 0) + 1
        unranked = frozenset(name for worker in others for name in self._names[worker.slot.name])
        return ClaimRequest(slots=slots, unranked=unranked)

    def assign(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, SlotHandle]]:
        """A free slot for each job.

        Jobs that failed on a slot choose first and avoid that slot. Unranked jobs go to degraded slots.
        """
        free, degraded = self.free(), self._degraded()
        for job in sorted(jobs, key=lambda job: job.avoid_slot is None):
            gpu_type = self._registry.get(job.gpu_type).name
            fitting = [worker for worker in free if worker.slot.gpu_type == gpu_type]
            chosen = min(fitting, key=partial(_reluctance, job=job, degraded=degraded))
            free.remove(chosen)
            yield job, chosen


def _reluctance(worker: SlotHandle, *, job: Job, degraded: Collection[str]) -> tuple[bool, bool, bool]:
    """How badly a slot suits a job; the smallest is the best."""
    ranks = worker.slot.name not in degraded
    # A device may have become degraded since the claim: then no better slot is left.
    return job.mode.ranked and not ranks, worker.slot.name == job.avoid_slot, ranks
