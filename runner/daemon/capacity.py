"""What this host asks the queue for, and which slot gets what the queue gives.

Owns the rule which slots can run at the same time: a slot of eight devices lies around eight of one, and is free when
none of them is busy, and they when it is not. Talks to no database. Called by the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from runner.daemon.leases import Lease
from runner.gpu_types import Registry
from runner.model import Job, Slot


class SlotHandle(Protocol):
    """A slot at work, as far as jobs are given to it (`runner.daemon.slot_worker.SlotWorker`)."""

    @property
    def slot(self) -> Slot:
        """Where it runs."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a job was given that has not been settled."""
        ...

    def give(self, lease: Lease) -> None:
        """Hand over a claimed job."""
        ...


@dataclass(frozen=True, kw_only=True)
class ClaimRequest:
    """The slots that may be claimed for."""

    #: GPU types, aliases included, and how many slots are free for each; the least recently served first.
    slots: Mapping[str, int]
    #: No more jobs than this at once; None: as many as there are slots.
    at_most: int | None
    #: Of these names, only slots are free on which nothing is ranked.
    unranked: frozenset[str] = frozenset()


NO_REQUEST: Final = ClaimRequest(slots={}, at_most=None)


class Capacity:
    """The slots of a host. Changed by the loop's thread only; others may ask whether something is free."""

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
        #: Names of slots whose last container is still there.
        self._quarantined = quarantined
        #: Names of slots whose devices' times do not count.
        self._degraded = degraded
        self._rivals = {
            one.slot.name: tuple(other for other in workers if other is not one and one.slot.excludes(other.slot))
            for one in workers
        }
        #: What does not change, because it is asked with every claim: the names a job may use for a slot; whose
        #: containers and whose devices it shares; and the slots that lie around others.
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
        self._outer = tuple(one for one in workers if len(self._devices[one.slot.name]) > 1)
        #: Slots that get no job for now, because a bigger one waits for them to come free.
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
            if worker.slot.name not in self._withheld
            and not worker.busy
            and not self._barred(worker, quarantined)
            and not any(rival.busy for rival in self._rivals[worker.slot.name])
        ]

    def usable(self) -> bool:
        """Whether any slot is used at all, busy or not."""
        quarantined = self._quarantined()
        return not all(self._barred(worker, quarantined) for worker in self._workers)

    def ranks(self, worker: SlotHandle) -> bool:
        """Whether what runs there may be ranked: neither its devices nor those of a slot within it are degraded."""
        return self._ranks(worker, self._degraded())

    def _ranks(self, worker: SlotHandle, degraded: Collection[str]) -> bool:
        return self._devices[worker.slot.name].isdisjoint(degraded)

    def _barred(self, worker: SlotHandle, quarantined: Collection[str]) -> bool:
        """Whether a container that will not go holds cores or devices of this slot."""
        return not self._sharing[worker.slot.name].isdisjoint(quarantined)

    def request(self) -> ClaimRequest:
        """What to ask for now: one job at a time where one choice takes away another.

        Slots on which nothing is ranked are offered when no other of their type is free: what they may run is then all
        that is asked for.
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
        # Types that share slots take turns, or a user's jobs of one would hold up everybody's of the other.
        served = {name: number for number, name in enumerate(self._served)}
        ordered = dict(sorted(slots.items(), key=lambda entry: served.get(entry[0], -1)))
        return ClaimRequest(slots=ordered, at_most=1 if rivalry else None, unranked=frozenset(self.names(others)))

    def assign(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, SlotHandle]]:
        """A free slot for each job; it must be made busy before the next is asked for.

        Jobs that failed on a slot choose first, and another one if there is one. What is not ranked goes where nothing
        else may. Else the slot that leaves the most possible: of eight, one whose neighbours work already.
        """
        free, degraded = self.free(), self._degraded()
        ranks = {worker.slot.name: self._ranks(worker, degraded) for worker in free}
        names = set(ranks)
        for job in sorted(jobs, key=lambda job: job.avoid_slot is None):
            self._served.pop(job.gpu_type, None)
            self._served[job.gpu_type] = None
            gpu_type, ranked = self._registry.get(job.gpu_type).name, job.mode.ranked
            chosen = min(
                (worker for worker in free if worker.slot.name in names and worker.slot.gpu_type == gpu_type),
                key=lambda worker, job=job, ranked=ranked: (  # type: ignore[misc]  # mypy: default in lambda
                    # No slot at all is left for a ranked job if its device was found unfit since the claim.
                    ranked and not ranks[worker.slot.name],
                    worker.slot.name == job.avoid_slot,
                    ranks[worker.slot.name],
                    len(self._sharing[worker.slot.name] & names),
                ),
            )
            yield job, chosen
            names -= self._sharing[chosen.slot.name]

    # -- reservations --------------------------------------------------------------------------------------------

    def blocked(self) -> list[SlotHandle]:
        """Slots around others that are kept from working by those: a stream of small jobs would starve them.

        Not those of a type that another slot could serve now, nor those on which nothing is ranked: nobody knows
        whether the job that waits is for them.
        """
        if not self._outer:
            return []
        served = {worker.slot.gpu_type for worker in self.free()}
        quarantined = self._quarantined()
        return [
            worker
            for worker in self._outer
            if not worker.busy
            and not self._barred(worker, quarantined)
            and worker.slot.gpu_type not in served
            and self.ranks(worker)
            and any(rival.busy and _around(worker.slot, rival.slot) for rival in self._rivals[worker.slot.name])
        ]

    def within(self, outer: Sequence[SlotHandle]) -> list[SlotHandle]:
        """The slots within these."""
        return [
            worker
            for worker in self._workers
            if any(_around(one.slot, worker.slot) for one in outer if worker is not one)
        ]

    def names(self, workers: Sequence[SlotHandle]) -> list[str]:
        """Every name that a job may use for one of these."""
        return sorted({name for worker in workers for name in self._names[worker.slot.name]})

    def cheapest(self, workers: Sequence[SlotHandle], gpu_type: str) -> SlotHandle | None:
        """The slot of a type, among these, that waits for the fewest runs."""
        name = self._registry.get(gpu_type).name
        return min(
            (worker for worker in workers if worker.slot.gpu_type == name),
            key=lambda worker: sum(rival.busy for rival in self._rivals[worker.slot.name]),
            default=None,
        )

    def withhold_for(self, worker: SlotHandle) -> None:
        """Let a slot come free: those it cannot work beside get no more jobs, all others do."""
        self._withheld = frozenset(rival.slot.name for rival in self._rivals[worker.slot.name])

    def withhold_nothing(self) -> None:
        """Every free slot may get jobs again."""
        self._withheld = frozenset()


def _around(outer: Slot, inner: Slot) -> bool:
    """Whether a slot has all devices of another and more."""
    return {device.uuid for device in inner.devices} < {device.uuid for device in outer.devices} and bool(inner.devices)
