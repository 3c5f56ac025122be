"""Keeps devices free for a job that needs several, when smaller jobs would keep them busy for ever.

Owns when a reservation is requested and when it ends. The database decides which job is due, and that one host alone
keeps devices free for it (`QueueStore.reserve`). Belongs to the claiming thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from runner.base.config import Config
from runner.base.logs import get_logger
from runner.daemon.capacity import Capacity
from runner.daemon.interfaces import SlotHandle
from runner.store import QueueStore

_log = get_logger(__name__)


class Reservations:
    """At most one reservation at a time: as many devices idle as one job needs, and no more."""

    def __init__(self, capacity: Capacity, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._config = config
        self._clock = clock
        #: The slot that is kept free.
        self._held: SlotHandle | None = None
        self._next_s = 0.0

    def renew(self, store: QueueStore) -> None:
        """Before a claim, at most once in `poll_s`: request a reservation, or renew ours.

        Costs nothing on a host where no larger slot waits for smaller ones.
        """
        if self._held is not None and self._held.busy:
            self.forget()
        if self._clock() >= self._next_s:
            self._ask(store)

    def ended(self, store: QueueStore) -> bool:
        """After a claim without jobs: whether our reservation has ended, so that the devices may be used again."""
        if self._held is None:
            return False
        self._ask(store)
        return self._held is None

    def forget(self) -> None:
        """The job has come, or the daemon claims nothing now; the reservation in the database expires by itself."""
        self._held = None
        self._capacity.withhold_nothing()

    def _ask(self, store: QueueStore) -> None:
        blocked = self._capacity.blocked()
        if self._held is not None and self._held not in blocked:
            blocked.append(self._held)
        if not blocked:
            return
        config = self._config
        self._next_s = self._clock() + config.poll_s
        gpu_type = store.reserve(
            host=config.host_name,
            gpu_types=self._capacity.names(blocked),
            smaller=self._capacity.names(self._capacity.within(blocked)),
            waited_s=config.reserve_after_s,
            hold_s=config.lease_s,
        )
        chosen = None if gpu_type is None else self._capacity.cheapest(blocked, gpu_type)
        if chosen is not self._held:
            if chosen is None:
                _log.info("reservation_ended")
            else:
                _log.info("reservation_made", slot=chosen.slot.name, gpu_type=gpu_type)
        self._held = chosen
        if chosen is None:
            self._capacity.withhold_nothing()
        else:
            self._capacity.withhold_for(chosen)
