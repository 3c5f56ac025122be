"""`Daemon`: starts a daemon's parts, claims jobs until it shall stop, and ends.

Owns when the queue is looked at, and the order of start and shutdown. Must not evaluate jobs or write results: slots,
heartbeat, listener, publisher and writer have threads of their own.

The thread that calls `run` claims. An idle daemon has two connections, this thread's and the listener's. The heartbeat
opens one while it holds leases. Every other thread opens one while it has something to write.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from runner.base import metrics
from runner.base.config import Config
from runner.base.errors import DatabaseUnavailableError, HostNameTakenError, InfrastructureError
from runner.base.gpu_types import Registry
from runner.base.logs import LogRateLimit, get_logger
from runner.base.model import Slot
from runner.base.retry import Backoff, between_s
from runner.daemon.capacity import Capacity
from runner.daemon.claim_turn import ClaimTurn
from runner.daemon.early_checks import EarlyChecks
from runner.daemon.housekeeping import Housekeeper
from runner.daemon.interfaces import Engine, JobEvaluator, StoreFactory
from runner.daemon.leases import LeaseKeeper, StopReason
from runner.daemon.listener import QueueListener, should_react
from runner.daemon.monitoring.health import DaemonSnapshot
from runner.daemon.monitoring.readiness import DATABASE, SLOTS, Readiness, missing
from runner.daemon.monitoring.watchdog import LONG_TASK_LIMIT_S, REQUEST_LIMIT_S, STEP_LIMIT_S, Watchdog
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.outcomes.replay import SpoolReplayer
from runner.daemon.outcomes.spool import Spool
from runner.daemon.outcomes.writer import OutcomeWriter
from runner.daemon.receipts import signer
from runner.daemon.recovery import Recovery
from runner.daemon.shutdown import ShutdownControl
from runner.daemon.slot import SlotSignals, SlotWorker
from runner.daemon.startup import Startup, host_record
from runner.daemon.threads import ThreadSupervisor
from runner.devices.quarantine import Quarantine
from runner.store import Claims, HostRecord, QueueStore

_log = get_logger(__name__)

#: How long stopped runs may take to remove their containers.
ABORT_S: Final = 30.0
#: How long the threads may take to end.
JOIN_S: Final = 10.0
#: The least time between two looks at the engine while no job runs.
ENGINE_PROBE_S: Final = 5.0
#: The pause between two looks at the queue, as a random part of `poll_s` between these two.
_POLL_SPREAD: Final = (0.75, 0.97)


class ExitReason(Enum):
    """Why `Daemon.run` returned."""

    #: Asked to stop; every job was finished or given back.
    CLEAN = "clean"
    #: Asked to stop; some run did not stop in time, so its lease has to expire.
    LEFT_RUNS = "left runs"


class Daemon:
    """One host's daemon. `run` may be called once.

    `check_database` raises InfrastructureError while no server answers or our schema is missing; `check_disk`, while a
    disk has too little space.
    """

    def __init__(
        self,
        config: Config,
        *,
        store_factory: StoreFactory,
        evaluator: JobEvaluator,
        engine: Engine,
        check_database: Callable[[], object],
        registry: Registry,
        slots: Sequence[Slot],
        spool: Spool,
        instance: str,
        readiness: Readiness | None = None,
        quarantine: Quarantine | None = None,
        check_disk: Callable[[], object] = lambda: None,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._config = config
        self._quarantine = quarantine or Quarantine()
        #: The kind of what the host lacks, and its first reason: later ones differ in figures. None: nothing.
        self._lacks: tuple[str, str] | None = None
        self._instance = instance
        self._signer = signer(config.state_dir)
        self._store_factory = store_factory
        self._engine = engine
        self._evaluator = evaluator
        self._check_disk = check_disk
        self._watchdog = watchdog or Watchdog()
        self._slots = tuple(slots)
        self._registry = registry
        self.readiness = readiness or Readiness()
        signals = SlotSignals()
        self._wake = signals.wake
        self._check_engine = signals.check_engine
        self._probe_at_s = time.monotonic() + ENGINE_PROBE_S
        self._give_up = threading.Event()
        self._threads = ThreadSupervisor()
        self._log_limit = LogRateLimit()
        self._keeper = LeaseKeeper(lambda: store_factory("heartbeat"), config, instance=instance)
        self._publisher = EventPublisher(store_factory)
        self._replayer = SpoolReplayer(spool, store_factory, self._keeper, self._publisher)
        self._writer = OutcomeWriter(
            store_factory,
            self._keeper,
            self._publisher,
            self._replayer,
            slots=len(self._slots),
            wake=self._wake,
            leaving=lambda: self._control is not None and self._control.stop.is_set(),
            give_up=self._give_up,
        )

        def worker(slot: Slot) -> SlotWorker:
            return SlotWorker(
                slot,
                host=config.host_name,
                evaluator=evaluator,
                keeper=self._keeper,
                publisher=self._publisher,
                writer=self._writer,
                signer=self._signer,
                signals=signals,
            )

        self._workers = tuple(worker(slot) for slot in self._slots)
        self._capacity = Capacity(self._workers, registry, quarantined=self._quarantine.reasons)
        self._early_checks = EarlyChecks(
            evaluator,
            self._publisher,
            config=config,
            instance=instance,
            slots=self._slots,
            registry=registry,
            busy_types=self._capacity.busy_types,
            wake=self._wake,
        )
        self._startup = Startup(
            engine=engine,
            check_database=check_database,
            check_disk=check_disk,
            evaluator=evaluator,
            replayer=self._replayer,
            registry=registry,
            host=self._host(),
            readiness=self.readiness,
            watchdog=self._watchdog,
            publisher=self._publisher,
        )
        #: As last written.
        self._host_record = self._host()
        self._serving_text = "serving " + ", ".join(
            f"{count} x {name}" for name, count in sorted(Counter(slot.gpu_type for slot in self._slots).items())
        )
        #: How many hosts get the same notifications, this one included; from the last claim.
        self._rivals = 1
        self._recovery = Recovery(
            config, startup=self._startup, keeper=self._keeper, publisher=self._publisher, instance=instance
        )
        self._claim_turn = ClaimTurn(
            config,
            capacity=self._capacity,
            recovery=self._recovery,
            keeper=self._keeper,
            publisher=self._publisher,
            instance=instance,
        )
        self._control: ShutdownControl | None = None

    def run(self, control: ShutdownControl) -> ExitReason:
        """Work until `control` asks for a stop; finish or give back what runs then."""
        self._control = control
        store = self._store_factory("claim")
        control.on_stop(self._wake.set)
        self._quarantine.on_change = self._wake.set
        try:
            if self._start(store, control):
                self._loop(store, control)
            exit_reason = self._drain(control)
            self._unregister(store)
        finally:
            self._halt()
            store.close()
        return exit_reason

    def _start(self, store: QueueStore, control: ShutdownControl) -> bool:
        if not self._startup.take_name(store, control.stop):
            return False
        if self._startup.saw_outage:
            self._recovery.start_reclaim_grace()
        self._threads.spawn("heartbeat", self._keeper.run)
        self._threads.spawn("replay", self._replayer.run)
        self._threads.spawn("publish", self._publisher.run)
        self._threads.spawn("commit", self._writer.run)
        self._threads.spawn("commit-late", self._writer.run_late)
        self._threads.spawn("commit-endings", self._writer.run_endings)
        # Renew at once: leases of spooled results were last renewed by the earlier process.
        self._keeper.nudge()

        def tell(error: InfrastructureError) -> None:
            self._note(error)
            self._update_host_record(store)

        if not self._startup.take_over(store, control.stop, tell):
            return False
        if not self._startup.prepare(self._slots, control.stop, tell):
            return False
        listener = QueueListener(
            self._store_factory,
            host=self._config.host_name,
            gpu_types=self._capacity.gpu_types,
            rivals=lambda: self._rivals,
            on_work=self._on_work_available,
            on_host_notice=self._on_host_notified,
        )
        self._threads.spawn("listen", listener.run)
        self._threads.spawn("housekeeping", Housekeeper(self._store_factory, self._config).run)
        self._threads.spawn("early-checks", self._early_checks.run)
        for worker in self._workers:
            self._threads.spawn(f"slot-{worker.slot.name}", worker.run)
        return True

    def snapshot(self) -> DaemonSnapshot:
        """The state of slots and leases. Any thread may call it."""
        return DaemonSnapshot(
            slots=tuple((worker.slot, worker.busy) for worker in self._workers),
            quarantined=self._quarantine.reasons(),
            usable=self._capacity.usable(),
            leases=len(self._keeper.held()),
            unwritten=self._writer.pending,
        )

    def _on_work_available(self) -> None:
        # A slot that comes free later wakes the loop itself.
        if self._capacity.free() and should_react(self._rivals):
            self._wake.set()

    def _on_host_notified(self) -> None:
        self._keeper.nudge()
        self._wake.set()

    # -- work ----------------------------------------------------------------------------------------------------

    def _loop(self, store: QueueStore, control: ShutdownControl) -> None:
        backoff = Backoff(cap_s=5.0)
        while not control.stop.is_set():
            # Cleared before the claim: a notification during the claim causes one more turn, and none is lost.
            self._wake.clear()
            self._watchdog.expect()
            try:
                claims = self._turn(store, control)
            except InfrastructureError as error:
                metrics.fault(error)
                self._recovery.claim_unconfirmed = self._recovery.claim_unconfirmed or isinstance(
                    error, DatabaseUnavailableError
                )
                if isinstance(error, HostNameTakenError):
                    # The heartbeat finds out that the runs here are lost.
                    self._recovery.claim_unconfirmed = True
                    self._keeper.nudge()
                self.readiness.not_ready(missing(error, otherwise=DATABASE), reason=str(error))
                self._pause(backoff.next_s(), control)
            except Exception as error:  # noqa: BLE001 - the daemon's loop; logged
                metrics.fault(error)
                # A bug or an unexpected row must not end the daemon while other slots run.
                if (left_out := self._log_limit.due("broke")) is not None:
                    _log.exception("claim_failed", left_out=left_out)
                self._recovery.claim_unconfirmed = True
                self._pause(backoff.next_s(), control)
            else:
                self._report_readiness(claims)
                backoff.reset()
                gap_s = self._poll_pause_s()
                self._watchdog.expect(gap_s + STEP_LIMIT_S)
                self._wake.wait(gap_s)

    def _turn(self, store: QueueStore, control: ShutdownControl) -> Claims:
        """One look at the queue: claim jobs, then do what the answer asks for.

        Without an engine or disk space it claims nothing. It still shows that this host lives, and reclaims expired
        leases.
        """
        trouble = self._check_engine_if_asked() or self._disk_trouble()
        if self._recovery.claim_unconfirmed:
            self._recovery.release_unacknowledged_claims(store)
        began_s = time.monotonic()
        claims = self._claim_turn.claim(store, control, able=trouble is None)
        if time.monotonic() - began_s > self._config.lease_s / 2:
            # The database stood still, or this process did.
            self._recovery.start_reclaim_grace()
        self._rivals = claims.rivals or self._rivals
        if not claims.registered:
            # The host row is gone or belongs to another daemon. No claim succeeds until the name is ours again.
            self._recovery.claim_unconfirmed = True
            self._recovery.release_unacknowledged_claims(store)
            _log.warning("host_registered_again")
        self._note(trouble)
        self._update_host_record(store)
        if self._recovery.reclaim(store, claims):
            self._wake.set()
        if trouble is None:
            self._early_checks.turn(store)
        trouble = trouble or (None if claims.jobs else self._probe_idle_engine())
        if trouble is not None:
            raise trouble
        return claims

    def _host(self) -> HostRecord:
        """The record of this host as others should see it now."""
        away = self._quarantine.reasons()
        gpu_types = sorted(self._capacity.usable())
        if self._lacks is not None:
            away = {**{slot.name: self._lacks[1] for slot in self._slots}, **away}
            gpu_types = []
        return host_record(self._config, self._instance, self._slots, gpu_types, away, key=self._signer.key)

    def _note(self, trouble: InfrastructureError | None) -> None:
        """Keep what the host lacks, for its record; a database that is away stands in no record."""
        lacks = None if trouble is None else (missing(trouble, otherwise=DATABASE), str(trouble))
        if lacks is None or (lacks[0] != DATABASE and (self._lacks is None or self._lacks[0] != lacks[0])):
            self._lacks = lacks

    def _update_host_record(self, store: QueueStore) -> None:
        """Write the host record again when quarantine, or what the host lacks, has changed it."""
        record = self._host()
        if record != self._host_record:
            self._startup.announce(store, record)
            self._host_record = record

    def _probe_idle_engine(self) -> InfrastructureError | None:
        """Ask the engine while nothing runs: else the next job would lose an attempt to one that is gone."""
        if not any(worker.busy for worker in self._workers) and time.monotonic() >= self._probe_at_s:
            self._check_engine.set()
        return self._check_engine_if_asked()

    def _check_engine_if_asked(self) -> InfrastructureError | None:
        """Ask engine and evaluator after a run failed through our fault, or while none runs; the error, if any."""
        if self._check_engine.is_set():
            # Many requests, each of which a busy engine may answer after a minute.
            self._watchdog.expect(LONG_TASK_LIMIT_S)
            try:
                self._engine.check()
                self._evaluator.check()
            except InfrastructureError as error:
                return error
            self._check_engine.clear()
            self._probe_at_s = time.monotonic() + ENGINE_PROBE_S
            self._watchdog.expect()
        return None

    def _disk_trouble(self) -> InfrastructureError | None:
        """The disk that has too little space, as an error. The check costs two system calls, so every turn makes it."""
        try:
            self._check_disk()
        except InfrastructureError as error:
            return error
        return None

    def _poll_pause_s(self) -> float:
        low, high = _POLL_SPREAD
        poll_s = self._config.poll_s
        gap_s = between_s(low * poll_s, high * poll_s)
        reclaim_in_s = self._recovery.due_in_s
        return gap_s if reclaim_in_s is None else min(gap_s, reclaim_in_s)

    def _pause(self, period_s: float, control: ShutdownControl) -> None:
        """Wait after a failure. Wake-ups do not shorten the wait; a stop does."""
        end_s = time.monotonic() + period_s
        self._watchdog.expect(period_s + STEP_LIMIT_S)
        while not control.stop.is_set() and (left_s := end_s - time.monotonic()) > 0:
            self._wake.wait(left_s)
            self._wake.clear()

    def _report_readiness(self, claims: Claims) -> None:
        if claims.draining:
            self.readiness.paused(f"draining: {claims.drain_reason or 'no reason was given'}")
        elif not self._capacity.usable():
            away = self._quarantine.reasons()
            self.readiness.not_ready(SLOTS, reason="; ".join(away.values()))
        else:
            self.readiness.working(self._status())

    def _running(self) -> int:
        """How many jobs are neither written nor safe in the spool."""
        return sum(worker.busy for worker in self._workers) + self._writer.pending

    def _status(self) -> str:
        away = self._quarantine.reasons().items()
        return "; ".join((self._serving_text, *(f"{slot} not used: {why}" for slot, why in away)))

    # -- shutdown ------------------------------------------------------------------------------------------------

    def _drain(self, control: ShutdownControl) -> ExitReason:
        """Let running jobs finish, or give them back after `drain_timeout_s`."""
        running = self._running()
        self.readiness.stopping(f"finishing {running} runs" if running else "nothing is running")
        if self._idle_within(self._config.drain_timeout_s, control.abort):
            return ExitReason.CLEAN
        _log.warning("running_jobs_released", told_to=control.abort.is_set(), runs=self._running())
        self._keeper.stop_all(StopReason.SHUTDOWN)
        if self._idle_within(ABORT_S):
            return ExitReason.CLEAN
        self._give_up.set()
        self._writer.nudge()
        if self._idle_within(JOIN_S):
            return ExitReason.CLEAN
        lost = self._writer.spool_pending()
        left = [worker.slot.name for worker in self._workers if worker.busy]
        if left or lost:
            _log.error("jobs_left_to_their_leases", slots=left, jobs=[job.id for job in lost])
        return ExitReason.LEFT_RUNS if left or lost else ExitReason.CLEAN

    def _idle_within(self, period_s: float, interrupt: threading.Event | None = None) -> bool:
        end_s = time.monotonic() + period_s
        while self._running():
            self._watchdog.expect()
            left_s = end_s - time.monotonic()
            if left_s <= 0 or (interrupt is not None and interrupt.is_set()):
                return False
            self._wake.wait(min(left_s, 1.0))
            self._wake.clear()
        return True

    def _unregister(self, store: QueueStore) -> None:
        if not self._startup.registered:
            return
        try:
            self._startup.unregister(store)
        except InfrastructureError as error:
            _log.warning("host_not_unregistered", error=str(error))

    def _halt(self) -> None:
        # Waits for each thread.
        self._watchdog.expect(REQUEST_LIMIT_S)
        self._threads.halt.set()
        for nudge in (self._publisher.nudge, self._keeper.nudge, self._replayer.nudge, self._writer.nudge):
            nudge()
        for worker in self._workers:
            worker.nudge()
        self._early_checks.nudge()
        self._threads.join(JOIN_S)
        self._writer.close()
