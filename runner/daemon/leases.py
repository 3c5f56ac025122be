"""The leases of the jobs this host holds: renews them, and stops runs whose job was lost or cancelled.

Owns the set of held jobs and the heartbeat. The heartbeat has its own thread and connection, so that neither a stalled
main thread nor a busy core makes the host look dead. The connection exists only while a lease is held. Must not end
jobs or decide verdicts: it sets a job's cancel event and gives the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from runner.base import metrics
from runner.base.config import Config
from runner.base.errors import InfrastructureError
from runner.base.logs import LogRateLimit, get_logger
from runner.base.model import Job
from runner.base.retry import Backoff
from runner.store import QueueStore

_log = get_logger(__name__)

#: The evaluation stops itself at `max_run_s` and reports a verdict. Only one that does not return is stopped here.
OVERTIME_GRACE_S: Final = 120.0
#: A run that has not returned so long after its stop request never will: the engine or the device hangs.
STOPPING_S: Final = 300.0


class StopReason(StrEnum):
    """Why a running job was asked to stop."""

    #: A cancel request is in the database.
    CANCELLED = "cancelled"
    #: Another host has the job, or it has ended: no result will be accepted.
    LOST = "lost"
    #: It ran longer than `max_run_s`.
    OVERTIME = "overtime"
    #: This daemon stops without waiting.
    SHUTDOWN = "shutdown"


class Lease:
    """One held job. Threadsafe; the first reason to stop counts."""

    def __init__(self, job: Job, *, deadline_s: float | None, spooled: bool = False) -> None:
        self.job = job
        #: The run's result is safe in the spool, which bears another claim of the same number beside it.
        self.spooled = spooled
        #: Set when the job shall stop; the evaluation waits on it.
        self.cancel = threading.Event()
        #: `time.monotonic()` after which the run is stopped; None: the run is over, its result waits for the database.
        self.deadline_s = deadline_s
        #: `time.monotonic()` after which it is no longer renewed; None: the heartbeat has seen no stop request yet.
        self.abandon_s: float | None = None
        self._lock = threading.Lock()
        self._reason: StopReason | None = None

    @property
    def reason(self) -> StopReason | None:
        """Why the job was asked to stop, or None."""
        return self._reason

    def stop(self, reason: StopReason) -> bool:
        """Ask the job to stop; False: it was asked before."""
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
        store_factory: Callable[[], QueueStore],
        config: Config,
        *,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store_factory = store_factory
        self._config = config
        self._instance = instance
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], Lease] = {}
        self._nudged = threading.Event()

    def hold(self, job: Job, *, running: bool = True, spooled: bool = False) -> Lease:
        """Renew a job's lease from now on: it was just claimed, or (not `running`) its result waits to be written.

        A lease that is held for the same attempt is replaced in the same step.
        """
        allowed_s = self._config.max_run_s + OVERTIME_GRACE_S
        deadline_s = self._clock() + allowed_s if running else None
        lease = Lease(job, deadline_s=deadline_s, spooled=spooled)
        with self._lock:
            self._held[job.key] = lease
        return lease

    def lease_of(self, job: Job) -> Lease | None:
        """The lease that is held for this job and attempt, if any."""
        with self._lock:
            return self._held.get(job.key)

    def lost(self, lease: Lease) -> None:
        """Stop a run whose job is not this host's any more. A result that waits is left to its commit."""
        if lease.deadline_s is not None and lease.stop(StopReason.LOST):
            metrics.lease_lost()
            _log.warning("lease_lost", job=lease.job.id, attempt=lease.job.attempt)

    def drop(self, lease: Lease) -> None:
        """Stop renewing: the job has ended or is given up. Does nothing if another lease has replaced this one."""
        with self._lock:
            if self._held.get(lease.job.key) is lease:
                del self._held[lease.job.key]

    def held(self) -> tuple[Lease, ...]:
        """The jobs being renewed."""
        with self._lock:
            return tuple(self._held.values())

    def stop_all(self, reason: StopReason) -> None:
        """Tell every held job that still runs to stop."""
        for lease in self.held():
            if lease.deadline_s is not None:
                lease.stop(reason)

    def nudge(self) -> None:
        """Send a heartbeat at once: a cancel request was announced, or the thread shall check its stop event."""
        self._nudged.set()

    def run(self, stop: threading.Event) -> None:
        """Send heartbeats while a lease is held, until `stop` is set. Logs the begin and the end of each outage once.

        A lease lasts several heartbeats from its claim. A run that is shorter than one costs no heartbeat and no
        connection.
        """
        store = self._store_factory()
        backoff = Backoff(cap_s=self._config.heartbeat_s)
        log_limit = LogRateLimit()
        logged = False
        pause_s = self._config.heartbeat_s
        try:
            while not stop.is_set():
                self._wait_for_next_beat(pause_s)
                if stop.is_set():
                    break
                self._stop_overtime()
                self._abandon_stuck()
                pause_s = self._config.heartbeat_s
                if not self.held():
                    store.close()
                    if logged:
                        # The next failure may be hours away and part of another outage: log that one again.
                        _log.info("heartbeat_not_needed")
                        logged = False
                    backoff.reset()
                    continue
                try:
                    self._send_heartbeat(store)
                except InfrastructureError as error:
                    metrics.heartbeat_failed()
                    if backoff.failures == 0 and (left_out := log_limit.due("outage")) is not None:
                        _log.warning("heartbeat_failing", error=str(error), left_out=left_out)
                        logged = True
                    pause_s = backoff.next_s()
                    continue
                if logged:
                    _log.info("heartbeat_recovered")
                    logged = False
                backoff.reset()
        finally:
            store.close()

    def _wait_for_next_beat(self, pause_s: float) -> None:
        """Wait for the next heartbeat or a nudge; warn when the process stood still for longer than a lease."""
        before_s = self._clock()
        self._nudged.wait(pause_s)
        self._nudged.clear()
        late_s = self._clock() - before_s - pause_s
        if late_s > self._config.lease_s and self.held():
            _log.warning("process_stalled", for_s=round(late_s, 1))

    def _send_heartbeat(self, store: QueueStore) -> None:
        with self._lock:
            asked = dict(self._held)
        config = self._config
        states = store.heartbeat(
            host=config.host_name, lease_s=config.lease_s, held=tuple(asked), instance=self._instance
        )
        metrics.renewed(sum(state.ours for state in states))
        for state in states:
            lease = asked.get((state.job_id, state.attempt))
            # A job that ended while the statement ran is no longer held, and "not ours" is then no news.
            if lease is None or lease not in self.held():
                continue
            if lease.deadline_s is None:
                # The run is over, and its own result may have ended the job: the commit finds out.
                continue
            if not state.ours:
                self.lost(lease)
            elif state.cancel_requested and lease.stop(StopReason.CANCELLED):
                _log.info("job_stop_requested", job=state.job_id, attempt=state.attempt)

    def _stop_overtime(self) -> None:
        for lease in self.held():
            overdue = lease.deadline_s is not None and self._clock() > lease.deadline_s
            if overdue and lease.stop(StopReason.OVERTIME):
                _log.error(
                    "run_overtime", job=lease.job.id, attempt=lease.job.attempt, max_run_s=self._config.max_run_s
                )

    def _abandon_stuck(self) -> None:
        """Stop renewing a run that ignores its stop request, so that another host can take the job."""
        now_s = self._clock()
        for lease in self.held():
            if lease.reason is None:
                continue
            if lease.abandon_s is None:
                lease.abandon_s = now_s + STOPPING_S
            elif now_s > lease.abandon_s:
                _log.error("run_does_not_stop", job=lease.job.id, attempt=lease.job.attempt, told_because=lease.reason)
                self.drop(lease)
