"""The daemon itself: start-up in order, the claiming loop, and the way out.

Owns which job goes to which slot and when claiming pauses. Runs nothing itself: slots, heartbeat, wake-ups and progress
have threads of their own. Called by `serve`, and by tests with a scripted evaluator.

Threads: the caller's thread claims; `heartbeat`, `listen` and `progress` have one connection each; every slot has one
thread, which opens a connection when it has something to settle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from runner import __version__
from runner.backoff import Backoff, jittered_s
from runner.config import Config, Settings
from runner.daemon.ports import Engine, Evaluates, StoreFactory
from runner.daemon.progress import ProgressReporter
from runner.daemon.readiness import Readiness
from runner.daemon.slots import COMMIT_PATIENCE_S, SlotWorker
from runner.errors import EngineUnavailableError, InfrastructureError
from runner.gpus import Registry
from runner.lease import LeaseKeeper, StopReason
from runner.logs import get_logger
from runner.model import Job, Slot
from runner.store import HostRecord, Store

_log = get_logger(__name__)

#: How long runs that were told to stop may take to let go of their containers.
ABORT_S: Final = 30.0
#: How long the threads may take to hear that it is over.
JOIN_S: Final = 10.0

_ENGINE: Final = "the container engine"
_DATABASE: Final = "the database"
_EVALUATION: Final = "the evaluation environment"


class Daemon:
    """One host's daemon. `run` may be called once.

    `check_database` raises InfrastructureError while the database lacks a server that answers, or our schema.
    """

    def __init__(
        self,
        config: Config,
        *,
        store_factory: StoreFactory,
        evaluator: Evaluates,
        engine: Engine,
        check_database: Callable[[], object],
        registry: Registry,
        slots: Sequence[Slot],
        readiness: Readiness | None = None,
        commit_patience_s: float = COMMIT_PATIENCE_S,
    ) -> None:
        self._config = config
        self._store_factory = store_factory
        self._evaluator = evaluator
        self._engine = engine
        self._check_database = check_database
        self._registry = registry
        self._slots = tuple(slots)
        self.readiness = readiness or Readiness()
        self._wake = threading.Event()
        self._give_up = threading.Event()
        self._halt = threading.Event()
        #: Set when a run failed through our fault: the engine is asked before the next claim.
        self._suspect = threading.Event()
        self._threads: list[threading.Thread] = []
        self._keeper = LeaseKeeper(
            lambda: store_factory("heartbeat"),
            Settings(config),
        )
        self._reporter = ProgressReporter(store_factory)
        self._workers = tuple(
            SlotWorker(
                slot,
                evaluator=evaluator,
                store_factory=store_factory,
                keeper=self._keeper,
                reporter=self._reporter,
                on_free=self._wake.set,
                on_trouble=self._suspect.set,
                give_up=self._give_up,
                commit_patience_s=commit_patience_s,
            )
            for slot in self._slots
        )
        self._reclaim_at_s = 0.0
        #: The database was away since the last turn that worked.
        self._outage = False

    def run(self, stop: threading.Event, abort: threading.Event | None = None) -> int:
        """Work until `stop` is set, then finish what is running; `abort` gives running jobs back instead.

        Returns the exit code: 0, or 1 if a run did not let go in time and was left to its lease.
        """
        abort = abort or threading.Event()
        store = self._store_factory("claim")
        try:
            if self._start(store, stop):
                self._loop(store, stop)
            clean = self._drain(abort)
            self._unregister(store)
        finally:
            self._halt.set()
            self._reporter.nudge()
            self._keeper.nudge()
            for worker in self._workers:
                worker.nudge()
            store.close()
            for thread in self._threads:
                thread.join(JOIN_S)
        return 0 if clean else 1

    # -- start-up ------------------------------------------------------------------------------------------------

    def _start(self, store: Store, stop: threading.Event) -> bool:
        """Wait for everything a job needs, in order; False: `stop` came first."""
        ready = (
            self._until(stop, _ENGINE, self._engine.check)
            and self._until(stop, _ENGINE, self._reap)
            and self._until(stop, _DATABASE, self._check_database)
            and self._until(stop, _EVALUATION, lambda: self._evaluator.prepare(self._slots), cap_s=60.0)
            and self._until(stop, _DATABASE, lambda: self._register(store))
        )
        if ready:
            self._spawn("heartbeat", self._keeper.run)
            self._spawn("progress", self._reporter.run)
            self._spawn("listen", lambda halt: self._listen(stop, halt))
            for worker in self._workers:
                self._spawn(f"slot-{worker.slot.name}", worker.run)
        return ready

    def _until(self, stop: threading.Event, what: str, action: Callable[[], object], *, cap_s: float = 15.0) -> bool:
        backoff = Backoff(cap_s=cap_s)
        while not stop.is_set():
            try:
                action()
            except InfrastructureError as error:
                self.readiness.not_ready(what, reason=str(error))
                self._outage = self._outage or what == _DATABASE
                backoff.wait(stop)
            else:
                if backoff.failures:
                    _log.info(f"{what} is there now", attempts=backoff.failures + 1)
                return True
        return False

    def _reap(self) -> None:
        left = self._engine.reap()
        if left:
            _log.warning("containers of an earlier process were removed", count=left)

    def _register(self, store: Store) -> None:
        store.sync_gpu_types(
            [(entry.name, entry.vendor.value, entry.aliases, entry.description) for entry in self._registry.all()]
        )
        store.register_host(
            host=HostRecord(
                name=self._config.host_name,
                version=__version__,
                slots=[
                    {
                        "name": slot.name,
                        "gpu_type": slot.gpu_type,
                        "cpus": list(slot.cpus),
                        "devices": [device.uuid for device in slot.devices],
                    }
                    for slot in self._slots
                ],
                instance=self._config.host_name,
                gpu_types=sorted(self._offer(self._workers)),
            )
        )

    def _spawn(self, name: str, body: Callable[[threading.Event], None]) -> None:
        thread = threading.Thread(target=self._supervise, args=(name, body), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _supervise(self, name: str, body: Callable[[threading.Event], None]) -> None:
        """A thread's body, started again whatever it dies of: without its heartbeat a daemon would lose every job."""
        backoff = Backoff()
        while not self._halt.is_set():
            try:
                body(self._halt)
            except Exception:  # noqa: BLE001 - the outermost frame of a thread; logged
                _log.exception("a thread of the daemon broke and is started again", thread=name)
                backoff.wait(self._halt)
            else:
                return

    # -- work ----------------------------------------------------------------------------------------------------

    def _loop(self, store: Store, stop: threading.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            self._wake.clear()
            try:
                self._turn(store)
            except EngineUnavailableError as error:
                self.readiness.not_ready(_ENGINE, reason=str(error))
                backoff.wait(stop)
            except InfrastructureError as error:
                self._outage = True
                self.readiness.not_ready(_DATABASE, reason=str(error))
                backoff.wait(stop)
            except Exception:  # noqa: BLE001 - the daemon's loop; logged
                # A bug or a row nobody foresaw must not end the daemon while other slots run.
                _log.exception("claiming broke and is tried again")
                backoff.wait(stop)
            else:
                self.readiness.working(self._status())
                backoff.reset()
                self._rest(stop, jittered_s(self._config.poll_s))

    def _turn(self, store: Store) -> None:
        if self._suspect.is_set():
            self._engine.check()
            self._suspect.clear()
        if self._outage:
            # Leases expired although their holders live. They get one lease's time to renew, and to commit what they
            # found meanwhile, before anybody may take their jobs.
            store.ping()
            self._outage = False
            self._reclaim_at_s = time.monotonic() + self._config.lease_s
        if time.monotonic() >= self._reclaim_at_s:
            reclaimed = store.reclaim()
            if reclaimed:
                _log.warning("leases had expired: jobs are queued again", count=len(reclaimed))
            self._reclaim_at_s = time.monotonic() + jittered_s(self._config.lease_s / 3)
        while free := self._free():
            claims = store.claim(
                host=self._config.host_name, slots=self._offer(free), lease_s=self._config.lease_s, at_most=1
            )
            if not claims.jobs:
                break
            self._assign(claims.jobs[0], free)

    def _free(self) -> list[SlotWorker]:
        return [worker for worker in self._workers if not worker.busy]

    def _offer(self, free: Sequence[SlotWorker]) -> dict[str, int]:
        """Free slots per GPU type, under every name a job may use for it."""
        offer: dict[str, int] = {}
        for worker in free:
            for name in (worker.slot.gpu_type, *self._registry.get(worker.slot.gpu_type).aliases):
                offer[name] = offer.get(name, 0) + 1
        return offer

    def _assign(self, job: Job, free: Sequence[SlotWorker]) -> None:
        gpu_type = self._registry.get(job.gpu_type).name
        worker = next(worker for worker in free if worker.slot.gpu_type == gpu_type)
        worker.give(self._keeper.hold(job))

    def _rest(self, stop: threading.Event, period_s: float) -> None:
        """Wait for a wake-up, or a period; hears `stop`, which is not ours to wake by, within half a second."""
        end_s = time.monotonic() + period_s
        while not stop.is_set() and (left_s := end_s - time.monotonic()) > 0:
            if self._wake.wait(min(left_s, 0.5)):
                return

    def _status(self) -> str:
        counts: dict[str, int] = {}
        for slot in self._slots:
            counts[slot.gpu_type] = counts.get(slot.gpu_type, 0) + 1
        return "serving " + ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))

    def _listen(self, stop: threading.Event, halt: threading.Event) -> None:
        """Turn database notifications into wake-ups. Polling goes on all the time, so a silent outage only slows us."""
        store = self._store_factory("listen")
        backoff = Backoff()
        try:
            while not stop.is_set() and not halt.is_set():
                try:
                    notified = store.listen(stop=stop, timeout_s=30.0)
                except InfrastructureError as error:
                    if backoff.failures == 0:
                        _log.warning("not listening for new jobs; polling goes on", error=str(error))
                    backoff.wait(stop)
                    continue
                if backoff.failures:
                    _log.info("listening for new jobs again")
                    backoff.reset()
                if notified:
                    self._wake.set()
        finally:
            store.close()

    # -- the way out ---------------------------------------------------------------------------------------------

    def _drain(self, abort: threading.Event) -> bool:
        """Let running jobs finish, or give them back; whether every slot came to rest."""
        running = sum(worker.busy for worker in self._workers)
        self.readiness.stopping(f"finishing {running} runs" if running else "nothing is running")
        if not self._idle_within(self._config.drain_timeout_s, abort):
            _log.warning("running jobs are given back", told_to=abort.is_set(), runs=len(self._keeper.held()))
            self._keeper.stop_all(StopReason.SHUTDOWN)
            if not self._idle_within(ABORT_S):
                self._give_up.set()
                if not self._idle_within(JOIN_S):
                    _log.error("runs did not stop; their leases will expire", runs=len(self._keeper.held()))
                    return False
        return True

    def _idle_within(self, period_s: float, interrupt: threading.Event | None = None) -> bool:
        end_s = time.monotonic() + period_s
        while any(worker.busy for worker in self._workers):
            if time.monotonic() >= end_s or (interrupt is not None and interrupt.is_set()):
                return False
            self._wake.clear()
            self._wake.wait(0.1)
        return True

    def _unregister(self, store: Store) -> None:
        try:
            store.unregister_host(self._config.host_name)
        except InfrastructureError as error:
            _log.warning("the database could not be told that this host stops", error=str(error))
