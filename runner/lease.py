"""The leases of the jobs this host is running: renews them, and hears that one was lost or should stop.

Owns the set of held jobs and the heartbeat. Has its own database connection and runs in its own thread, so that neither
a stalled main loop nor a run that keeps a core busy makes the database think the host is dead. Must not end jobs or
decide verdicts: it sets a job's cancel event and says why. Called by the daemon.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

from runner.backoff import Backoff
from runner.errors import InfrastructureError
from runner.logs import get_logger
from runner.model import Job
from runner.store import LeaseState

_log = get_logger(__name__)

#: The evaluation bounds itself by `max_run_s` and reports a verdict; only one that does not come back is stopped here.
OVERTIME_GRACE_S: Final = 120.0


class StopReason(StrEnum):
    """Why a running job was told to stop."""

    #: The database says someone asked for it.
    CANCELLED = "cancelled"
    #: The job was taken over or ended by someone else: nothing it finds will be accepted.
    LOST = "lost"
    #: It ran longer than `max_run_s`.
    OVERTIME = "overtime"
    #: This daemon is going down and does not wait.
    SHUTDOWN = "shutdown"


class Heart(Protocol):
    """The part of `runner.store.Store` that a lease keeper uses."""

    def heartbeat(self, *, host: str, lease_s: float, held: Sequence[tuple[int, int]]) -> Sequence[LeaseState]:
        """Renew the leases of (job id, attempt) pairs."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Lease:
    """One held job. Threadsafe; the first reason to stop is the one that counts."""

    def __init__(self, job: Job, *, deadline_s: float) -> None:
        self.job = job
        #: Set when the job shall stop; handed to the evaluation.
        self.cancel = threading.Event()
        #: `time.monotonic()` after which the run is stopped.
        self.deadline_s = deadline_s
        self._lock = threading.Lock()
        self._reason: StopReason | None = None

    @property
    def reason(self) -> StopReason | None:
        """Why the job was told to stop, or None."""
        return self._reason

    def stop(self, reason: StopReason) -> bool:
        """Tell the job to stop; False: it was told before."""
        with self._lock:
            if self._reason is not None:
                return False
            self._reason = reason
        self.cancel.set()
        return True


class LeaseKeeper:
    """Holds leases and renews them. `run` is the body of the heartbeat thread; everything else is threadsafe."""

    def __init__(
        self,
        store_factory: Callable[[], Heart],
        *,
        host: str,
        lease_s: float,
        heartbeat_s: float,
        max_run_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store_factory = store_factory
        self._host = host
        self._lease_s = lease_s
        self._heartbeat_s = heartbeat_s
        self._max_run_s = max_run_s
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], Lease] = {}

    def hold(self, job: Job) -> Lease:
        """Start renewing a job that was just claimed."""
        lease = Lease(job, deadline_s=self._clock() + self._max_run_s + OVERTIME_GRACE_S)
        with self._lock:
            self._held[job.id, job.attempt] = lease
        return lease

    def drop(self, lease: Lease) -> None:
        """Stop renewing: the job has ended or is given up."""
        with self._lock:
            self._held.pop((lease.job.id, lease.job.attempt), None)

    def held(self) -> tuple[Lease, ...]:
        """The jobs being renewed."""
        with self._lock:
            return tuple(self._held.values())

    def stop_all(self, reason: StopReason) -> None:
        """Tell every held job to stop."""
        for lease in self.held():
            lease.stop(reason)

    def run(self, stop: threading.Event) -> None:
        """Beat until `stop` is set; survives outages of the database and says once that each begins and ends."""
        store = self._store_factory()
        backoff = Backoff(cap_s=self._heartbeat_s)
        away = False
        try:
            while not stop.is_set():
                self._stop_overtime()
                try:
                    self._beat(store)
                except InfrastructureError as error:
                    if not away:
                        _log.warning("heartbeat fails; runs go on, their leases may expire", error=str(error))
                    away = True
                    backoff.wait(stop)
                    continue
                if away:
                    _log.info("heartbeat works again")
                    away = False
                    backoff.reset()
                stop.wait(self._heartbeat_s)
        finally:
            store.close()

    def _beat(self, store: Heart) -> None:
        asked: Mapping[tuple[int, int], Lease]
        with self._lock:
            asked = dict(self._held)
        for state in store.heartbeat(host=self._host, lease_s=self._lease_s, held=tuple(asked)):
            lease = asked.get((state.job_id, state.attempt))
            # A job that ended while the statement ran is no longer held, and "not ours" is then no news.
            if lease is None or (state.job_id, state.attempt) not in self._keys():
                continue
            if not state.ours:
                if lease.stop(StopReason.LOST):
                    _log.warning("lease lost: the run is stopped", job=state.job_id, attempt=state.attempt)
            elif state.cancel_requested and lease.stop(StopReason.CANCELLED):
                _log.info("job was asked to stop", job=state.job_id, attempt=state.attempt)

    def _keys(self) -> frozenset[tuple[int, int]]:
        with self._lock:
            return frozenset(self._held)

    def _stop_overtime(self) -> None:
        for lease in self.held():
            if self._clock() > lease.deadline_s and lease.stop(StopReason.OVERTIME):
                _log.error(
                    "run is longer than max_run_s: stopped",
                    job=lease.job.id,
                    attempt=lease.job.attempt,
                    max_run_s=self._max_run_s,
                )
