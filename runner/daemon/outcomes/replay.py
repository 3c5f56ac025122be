"""Commits spooled results, oldest first, as soon as the database answers.

Owns what becomes of a spooled result. It is committed, or kept as evidence in the database if the attempt is no longer
ours. It is dropped if the database has no such job, or refuses it; in the second case the job is failed with the cause.
Holds the leases of spooled jobs, so that no host evaluates them again. The thread sleeps while the spool is empty.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from runner.base import metrics
from runner.base.database_address import mask_password
from runner.base.errors import InfrastructureError, StaleAttemptError
from runner.base.logs import LogRateLimit, get_logger, job_context
from runner.base.model import Job, JobResult
from runner.base.retry import Backoff
from runner.daemon.interfaces import StoreFactory
from runner.daemon.leases import Lease, LeaseKeeper
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.outcomes.spool import Spool, Spooled
from runner.store import QueueStore

_log = get_logger(__name__)

#: The longest pause between two attempts while a result waits.
CAP_S: Final = 4.0
#: A result that an answering database has not taken for so long is given up, and its job is failed.
PATIENCE_S: Final = 1800.0


class SpoolReplayer:
    """Commits spooled results. `run` is the body of its thread; everything else is threadsafe."""

    def __init__(
        self,
        spool: Spool,
        store_factory: StoreFactory,
        keeper: LeaseKeeper,
        publisher: EventPublisher,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = spool
        self._store_factory = store_factory
        self._keeper = keeper
        self._publisher = publisher
        self._wake = threading.Event()
        self._leases: dict[tuple[int, int], Lease] = {}
        self._clock = clock
        #: Since when the database has answered, but not for this result.
        self._troubled_s: dict[tuple[int, int], float] = {}
        #: One replay at a time.
        self._delivering = threading.Lock()

    def adopt(self) -> None:
        """Hold the leases of results that an earlier process spooled, so that heartbeats renew them."""
        jobs = [spooled.job for spooled in self._spool.pending() if spooled.job.key not in self._leases]
        for job in jobs:
            self._hold(job)
        if jobs:
            _log.info("old_results_in_spool", count=len(jobs))

    def accept(self, job: Job, result: JobResult, *, slot: str) -> bool:
        """Spool a result until it can be committed, and hold its lease. False: the spool cannot keep it.

        Raises:
            TypeError, ValueError: the result cannot be encoded.
        """
        if not self._spool.put(job, result, slot=slot):
            return False
        self._hold(job)
        if job.key not in self.keys():
            # Replayed between the two lines above: nothing is left to renew.
            self._drop(job)
        self._wake.set()
        return True

    def keys(self) -> Sequence[tuple[int, int]]:
        """(job id, attempt) of every spooled result."""
        return [spooled.job.key for spooled in self._spool.pending()]

    def nudge(self) -> None:
        """Make the thread look at the spool, or at its stop event, now."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Replay until `stop` is set.

        Logs when results begin to wait and when the spool is empty again, at most once a minute.
        """
        store = self._store_factory("replay")
        log_limit = LogRateLimit()
        backoff = Backoff(cap_s=CAP_S)
        try:
            while not stop.is_set():
                self._wake.clear()
                self._drop_vanished()
                if not self._spool.pending():
                    store.close()
                    self._wake.wait(CAP_S)
                    continue
                try:
                    committed = self.replay_once(store)
                except InfrastructureError as error:
                    if backoff.failures == 0 and (left_out := log_limit.due("waits")) is not None:
                        _log.warning("spool_waits_for_database", error=str(error), left_out=left_out)
                    backoff.wait(stop)
                    continue
                if (committed or backoff.failures) and (left_out := log_limit.due("delivered")) is not None:
                    _log.info("spool_replayed", committed=committed, waits=backoff.failures, left_out=left_out)
                backoff.reset()
                if self._spool.pending():
                    # The disk fails, or they came just now.
                    self._wake.wait(CAP_S)
        finally:
            store.close()

    def replay_once(self, store: QueueStore) -> int:
        """Commit every spooled result, in order; how many were committed.

        Raises:
            InfrastructureError: the database went away, or did not take some result; the rest stays in the spool.
        """
        committed = 0
        trouble: InfrastructureError | None = None
        with self._delivering:
            for spooled in self._spool.pending():
                with job_context(spooled.job, slot=spooled.slot):
                    try:
                        committed += self._deliver(store, spooled)
                    except InfrastructureError as error:
                        # A result that takes too long, or waits for a lock, must not delay those behind it.
                        store.ping()
                        self._tolerate_timeout(store, spooled, error)
                        trouble = error
        if trouble is not None:
            raise trouble
        return committed

    def _deliver(self, store: QueueStore, spooled: Spooled) -> bool:
        job = spooled.job
        result = self._spool.load(spooled)
        if result is None:
            return False
        try:
            completion = store.complete(job, result)
        except StaleAttemptError as error:
            if error.gone:
                # The job may be in another database, if `database_url` was changed.
                self._give_up(spooled, f"this database has no such job: {error}")
                return False
            committed = False
            metrics.uncommitted(job)
            _log.warning("spooled_result_too_late", error=str(error))
        except InfrastructureError:
            raise
        except Exception as error:  # noqa: BLE001 - the daemon outlives it; logged with the job's ids
            _log.exception("spooled_result_refused")
            self._fail(store, spooled, mask_password(f"unexpected {type(error).__name__}: {error}"))
            return False
        else:
            committed = True
            metrics.committed(job, result.verdict)
            _log.info("spooled_result_committed", verdict=result.verdict.value)
            self._publisher.committed(job, result.verdict, submission_done=completion.submission_done)
        self._spool.remove(spooled)
        self._drop(job)
        return committed

    def _tolerate_timeout(self, store: QueueStore, spooled: Spooled, error: InfrastructureError) -> None:
        """The database answers, but not for this result: retry for `PATIENCE_S`, then fail the job.

        Raises:
            InfrastructureError: the database went away; the result stays in the spool.
        """
        now_s = self._clock()
        if now_s - self._troubled_s.setdefault(spooled.job.key, now_s) >= PATIENCE_S:
            _log.error("spooled_result_given_up", error=str(error))
            self._fail(store, spooled, mask_password(f"the result could not be committed: {error}"))

    def _fail(self, store: QueueStore, spooled: Spooled, cause: str) -> None:
        """End an attempt whose result will never be accepted, with the cause; the job is retried.

        Raises:
            InfrastructureError: the database went away; the result stays in the spool.
        """
        job = spooled.job
        metrics.refused(job)
        try:
            ended = store.fail(job, error=cause, report={"slot": spooled.slot}, slot=spooled.slot)
        except StaleAttemptError as error:
            _log.warning("job_not_ours", error=str(error))
        except InfrastructureError:
            raise
        except Exception:  # noqa: BLE001 - logged with the job's ids
            _log.exception("job_not_failed")
        else:
            self._publisher.ended(job, ended)
        self._give_up(spooled, cause)

    def _give_up(self, spooled: Spooled, reason: str) -> None:
        _log.error("spooled_result_dropped", reason=reason)
        self._spool.remove(spooled)
        self._drop(spooled.job)

    def _drop_vanished(self) -> None:
        """Drop the leases of results that left the spool without a commit: damaged, or removed by hand."""
        # In this order: a result is in the spool before its lease is held.
        held = tuple(self._leases.items())
        if not held:
            return
        waiting = self.keys()
        for key, lease in held:
            if key not in waiting:
                _log.warning("spooled_result_missing", job=key[0], attempt=key[1])
                self._drop(lease.job)

    def _hold(self, job: Job) -> None:
        self._leases[job.key] = self._keeper.hold(job, running=False, spooled=True)

    def _drop(self, job: Job) -> None:
        self._troubled_s.pop(job.key, None)
        lease = self._leases.pop(job.key, None)
        if lease is not None:
            self._keeper.drop(lease)
