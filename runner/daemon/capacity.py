"""Which slots are free, what to ask the queue for, and which slot gets which job. Talks to no database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from runner.base.gpu_types import Registry
from runner.base.model import Job
from runner.daemon.slot import SlotWorker


class Capacity:
    """The slots of a host. Threadsafe."""

    def __init__(
        self,
        workers: Sequence[SlotWorker],
        registry: Registry,
        *,
        quarantined: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._workers = tuple(workers)
        self._registry = registry
        #: Names of quarantined slots.
        self._quarantined = quarantined
        #: By name of a slot: the names a job may use for it.
        self._names = {one.slot.name: (one.slot.gpu_type, *registry.get(one.slot.gpu_type).aliases) for one in workers}

    @property
    def gpu_types(self) -> frozenset[str]:
        """Every name that a job may use for one of the slots."""
        return frozenset(name for names in self._names.values() for name in names)

    def free(self) -> list[SlotWorker]:
        """Slots that could start a job now."""
        quarantined = self._quarantined()
        return [worker for worker in self._workers if not worker.busy and worker.slot.name not in quarantined]

    def usable(self) -> Mapping[str, int]:
        """GPU types, aliases included, and how many slots that are used, busy or not, are for each; empty: none is."""
        quarantined = self._quarantined()
        return self.request(worker for worker in self._workers if worker.slot.name not in quarantined)

    def request(self, free: Iterable[SlotWorker]) -> Mapping[str, int]:
        """GPU types, aliases included, and how many of these slots are for each."""
        return Counter(name for worker in free for name in self._names[worker.slot.name])

    def busy_types(self) -> Collection[str]:
        """Every name of the GPU types of which no slot could start a job now."""
        return self.gpu_types - self.request(self.free()).keys()

    def assign(self, jobs: Sequence[Job], free: list[SlotWorker]) -> Iterator[tuple[Job, SlotWorker]]:
        """A slot for each job, taken out of `free`, the slots that they were asked for.

        Jobs that failed on a slot choose first and avoid that slot.
        """
        for job in sorted(jobs, key=lambda job: job.avoid_slot is None):
            gpu_type = self._registry.get(job.gpu_type).name
            fitting = [worker for worker in free if worker.slot.gpu_type == gpu_type]
            chosen = next((worker for worker in fitting if worker.slot.name != job.avoid_slot), fitting[0])
            free.remove(chosen)
            yield job, chosen
