"""The daemon itself: start-up, the claiming loop, and the way out.

Owns when jobs are claimed, and what follows from what a claim says. Runs nothing itself: what is free is `offers`,
slots, heartbeat, wake-ups, announcements and delivery have threads of their own. Called by `serve`, and by tests with a
scripted evaluator.

The caller's thread claims. At rest there are two connections, this one's and the listener's; `heartbeat` opens one
while something is held, and every other thread while it has something to write.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from runner import metrics
from runner.config import Settings
from runner.daemon.capacity import NOTHING, Capacity, Offer
from runner.daemon.housekeeping import Housekeeper
from runner.daemon.interfaces import Engine, Evaluates, StoreFactory
from runner.daemon.leases import LeaseKeeper, StopReason
from runner.daemon.listener import Wakeups, takes_part
from runner.daemon.monitoring.engine_probe import Lookout
from runner.daemon.monitoring.readiness import DATABASE, Readiness, missing, unusable
from runner.daemon.monitoring.snapshot import Census
from runner.daemon.monitoring.watchdog import QUESTION_S, STEP_S, Pulse
from runner.daemon.outcomes import events
from runner.daemon.outcomes.committer import Settler
from runner.daemon.outcomes.publisher import Announcer
from runner.daemon.outcomes.replay import Delivery
from runner.daemon.outcomes.spool import Spool
from runner.daemon.reservations import Reservations
from runner.daemon.server_clock import ServerClock
from runner.daemon.shutdown import Orders
from runner.daemon.slot_queue import Ahead, Desk
from runner.daemon.slot_worker import PATIENCE_S, SlotWorker
from runner.daemon.startup import Startup, host_record
from runner.daemon.threads import Threads
from runner.devices.quarantine import Quarantine
from runner.errors import (
    DatabaseUnavailableError,
    HostNameTakenError,
    InfrastructureError,
    StaleAttemptError,
)
from runner.gpu_types import Registry
from runner.logs import Sparing, get_logger
from runner.model import Job, JobState, Slot
from runner.retry import Backoff, between_s
from runner.store import Claims, HostRecord, Reclaimed, Store, Unreadable

_log = get_logger(__name__)

#: How long runs that were told to stop may take to let go of their containers.
ABORT_S: Final = 30.0
#: How long the threads may take to hear that it is over.
JOIN_S: Final = 10.0
#: Where a job failed that never came to a slot.
NO_SLOT: Final = "none"
#: The pause between two looks at the queue, as parts of `poll_s`, which is the longest.
_POLL_SPREAD: Final = (0.75, 0.97)
#: The time between a claim that brought jobs and the next one, unless every slot is free before. Slots that come free
#: meanwhile are claimed for together: a claim for all of them costs hardly more than one for one.
GATHER_S: Final = 0.0025
#: The part of a lease by which the server's clock may be put forward before leases are spared for that.
_JUMP: Final = 0.2
#: Hosts that see an expired lease wait up to so long before they reclaim: the first spares the others the work.
_RECLAIM_SPREAD_S: Final = 1.0


class Ending(Enum):
    """Why `Daemon.run` came back."""

    #: Told to stop, and nothing is left.
    CLEAN = "clean"
    #: Told to stop, and a run did not let go in time and was left to its lease.
    LEFT_RUNS = "left runs"
    #: Nothing runs any more, so that new parts can be made.
    REBUILD = "rebuild"


class Daemon:
    """One host's daemon. `run` may be called once.

    `check_database` raises InfrastructureError while the database lacks a server that answers, or our schema;
    `check_disk`, while a disk has too little room.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store_factory: StoreFactory,
        evaluator: Evaluates,
        engine: Engine,
        check_database: Callable[[], object],
        registry: Registry,
        slots: Sequence[Slot],
        spool: Spool,
        instance: str,
        readiness: Readiness | None = None,
        patience_s: float = PATIENCE_S,
        quarantine: Quarantine | None = None,
        check_disk: Callable[[], object] = lambda: None,
        pulse: Pulse | None = None,
    ) -> None:
        self._settings = settings
        self._quarantine = quarantine or Quarantine()
        self._instance = instance
        self._store_factory = store_factory
        self._engine = engine
        self._check_disk = check_disk
        self._pulse = pulse or Pulse()
        self._slots = tuple(slots)
        self._registry = registry
        self.readiness = readiness or Readiness()
        self._wake = threading.Event()
        #: Set when the last busy slot has come free.
        self._all_free = threading.Event()
        self._give_up = threading.Event()
        #: Set when a run failed through our fault: the engine is asked before the next claim.
        self._suspect = threading.Event()
        self._threads = Threads()
        self._instance = instance
        self._sparing = Sparing()
        self._keeper = LeaseKeeper(lambda: store_factory("heartbeat"), settings, instance=instance)
        self._announcer = Announcer(store_factory)
        self._delivery = Delivery(spool, store_factory, self._keeper, self._announcer)
        self._settler = Settler(
            store_factory,
            self._keeper,
            self._announcer,
            self._delivery,
            slots=len(self._slots),
            on_empty=self._hear_of_the_last_result,
            give_up=self._give_up,
            patience_s=patience_s,
        )

        def worker(slot: Slot) -> SlotWorker:
            return SlotWorker(
                slot,
                host=settings.now.host_name,
                evaluator=evaluator,
                store_factory=store_factory,
                keeper=self._keeper,
                announcer=self._announcer,
                settler=self._settler,
                on_free=self._hear_of_a_free_slot,
                on_trouble=self._suspect.set,
                leaving=self._leaving,
                give_up=self._give_up,
                patience_s=patience_s,
            )

        self._desks = tuple(Desk(slot, worker, start=self._start_worker) for slot in self._slots)
        self._ahead = Ahead(self._desks, evaluator.can_build)
        self._capacity = Capacity(
            self._desks, registry, quarantined=self._quarantine.reasons, degraded=self._quarantine.remarks
        )
        self._reservations = Reservations(self._capacity, settings)
        self._startup = Startup(
            engine=engine,
            check_database=check_database,
            evaluator=evaluator,
            delivery=self._delivery,
            registry=registry,
            host=self._host(),
            readiness=self.readiness,
            pulse=self._pulse,
            tell=self._tell_of,
        )
        #: What the list of hosts says of this one, and what that was made of.
        self._told = self._host()
        self._told_of = self._changing()
        self._serving = "serving " + ", ".join(
            f"{count} x {name}" for name, count in sorted(Counter(slot.gpu_type for slot in self._slots).items())
        )
        #: Hosts that hear of the same work, this one included, as far as claims have said.
        self._rivals = 1
        #: A claim was not answered: it may have been granted all the same.
        self._doubt = False
        #: Expired leases are left alone until then: their holders get a lease's time to renew them after an outage.
        self._grace_until_s = 0.0
        #: When to reclaim, since a claim said that it is due.
        self._reclaim_at_s: float | None = None
        self._orders: Orders | None = None
        self._server_clock = ServerClock()

    def run(self, orders: Orders) -> Ending:
        """Work until told to stop, then finish what is running; or until told to make room for new parts."""
        self._orders = orders
        store = self._store_factory("claim")
        # The heartbeat too: a reload may have made leases shorter than its pause.
        orders.on_change(self._hear_of_this_host)
        self._quarantine.on_change(self._wake.set)
        try:
            if self._start(store, orders):
                self._loop(store, orders)
            ending = self._drain(orders) if orders.stop.is_set() else Ending.REBUILD
            self._unregister(store)
        finally:
            orders.on_change(lambda: None)
            self._halt()
            store.close()
        return ending

    def _start(self, store: Store, orders: Orders) -> bool:
        if not self._startup.take_name(store, orders.leave):
            return False
        if self._startup.saw_outage:
            self._spare_leases()
        self._threads.spawn("heartbeat", self._keeper.run)
        self._threads.spawn("deliver", self._delivery.run)
        self._threads.spawn("announce", self._announcer.run)
        self._threads.spawn("settle", self._settler.run)
        self._threads.spawn("settle-late", self._settler.relieve)
        # Leases of spooled results have not been renewed since the earlier process ended.
        self._keeper.nudge()
        if not self._startup.take_over(store, orders.leave):
            return False
        if not self._startup.prepare(self._slots, orders.leave):
            return False
        wakeups = Wakeups(
            self._store_factory,
            host=self._settings.now.host_name,
            gpu_types=self._capacity.gpu_types,
            on_work=self._hear_of_work,
            on_told=self._hear_of_this_host,
        )
        self._threads.spawn("listen", wakeups.run)
        lookout = Lookout(self._engine, idle=self._nothing_runs, on_trouble=self._suspect_engine)
        self._threads.spawn("lookout", lookout.run)
        self._threads.spawn("housekeeping", Housekeeper(self._store_factory, self._settings).run)
        for desk in self._desks:
            desk.open()
        return True

    def census(self) -> Census:
        """How it stands with the slots, for whoever asks over HTTP; from any thread."""
        return Census(
            slots=tuple((desk.slot, desk.busy) for desk in self._desks),
            quarantined=self._quarantine.reasons(),
            degraded=self._quarantine.remarks(),
            leases=len(self._keeper.held()),
            unwritten=self._settler.pending,
        )

    def _start_worker(self, worker: SlotWorker) -> None:
        self._threads.spawn(f"slot-{worker.slot.name}", worker.run)

    def _workers(self) -> list[SlotWorker]:
        return [worker for desk in self._desks for worker in desk.workers]

    def _hear_of_work(self) -> None:
        # A slot that comes free later wakes the loop itself.
        if self._capacity.free() and takes_part(self._rivals):
            self._wake.set()

    def _hear_of_a_free_slot(self) -> None:
        self._wake.set()
        if not self._any_busy():
            self._all_free.set()

    def _any_busy(self) -> bool:
        return any(desk.busy for desk in self._desks)

    def _hear_of_this_host(self) -> None:
        self._keeper.nudge()
        self._wake.set()

    def _leaving(self) -> bool:
        return self._orders is not None and self._orders.leave.is_set()

    def _hear_of_the_last_result(self) -> None:
        # Else nobody waits for it.
        if self._leaving():
            self._wake.set()

    # -- work ----------------------------------------------------------------------------------------------------

    def _loop(self, store: Store, orders: Orders) -> None:
        backoff = Backoff(cap_s=5.0)
        while not self._over(orders):
            # Cleared before the claim: what is announced while it runs costs one more, and nothing is missed.
            self._wake.clear()
            self._pulse.expect()
            try:
                claims = self._turn(store, orders)
            except InfrastructureError as error:
                metrics.fault(error)
                self._doubt = self._doubt or isinstance(error, DatabaseUnavailableError)
                if isinstance(error, HostNameTakenError):
                    self._lose_name()
                self.readiness.not_ready(missing(error, otherwise=DATABASE), reason=str(error))
                self._pause(backoff.next_s(), orders)
            except Exception as error:  # noqa: BLE001 - the daemon's loop; logged
                metrics.fault(error)
                # A bug or a row nobody foresaw must not end the daemon while other slots run.
                if (left_out := self._sparing.due("broke")) is not None:
                    _log.exception("claiming broke and is tried again", left_out=left_out)
                self._doubt = True
                self._pause(backoff.next_s(), orders)
            else:
                self._say(claims, orders)
                backoff.reset()
                gap_s = self._gap_s()
                self._pulse.expect(gap_s + STEP_S)
                self._wake.wait(gap_s)

    def _over(self, orders: Orders) -> bool:
        return orders.stop.is_set() or (orders.rebuild is not None and not self._running())

    def _turn(self, store: Store, orders: Orders) -> Claims:
        """One look at the queue: takes what fits, and does what the answer says is due.

        Without engine or disk space nothing fits; but the host shows that it lives, and expired leases are taken back.
        """
        trouble = self._ask_engine() or self._ask_disk()
        if self._doubt:
            self._put_back_what_nobody_heard_of(store)
        began_s = time.monotonic()
        claims = self._claim(store, orders, able=trouble is None)
        if time.monotonic() - began_s > self._settings.now.lease_s / 2:
            # The database stood still, or this process did.
            self._spare_leases()
        self._rivals = claims.rivals or self._rivals
        if claims.draining or orders.leave.is_set():
            self._give_back_what_has_not_begun()
        if not claims.registered:
            # Gone from the database, or another daemon's. Until the name is ours again nothing is claimed.
            self._doubt = True
            self._put_back_what_nobody_heard_of(store)
            _log.warning("this host's name was free or another daemon's for a while; it is registered again")
        self._tell_changes(store)
        self._reclaim(store, claims)
        if trouble is not None:
            raise trouble
        return claims

    def _host(self) -> HostRecord:
        """This daemon as the list of hosts shall show it now."""
        gpu_types = sorted(self._capacity.gpu_types)
        away, worse = self._quarantine.reasons(), self._quarantine.remarks()
        return host_record(self._settings.now, self._instance, self._slots, gpu_types, away, degraded=worse)

    def _tell_changes(self, store: Store) -> None:
        """Keep the list of hosts right: which slots wait for a container to go, what a reload has changed."""
        if (changing := self._changing()) == self._told_of:
            return
        now = self._host()
        if now != self._told:
            self._startup.announce(store, now)
            self._told = now
        self._told_of = changing

    def _changing(self) -> tuple[object, ...]:
        """What of `_host` may change: asked at every look, unlike the whole."""
        return self._settings.now, self._quarantine.reasons(), self._quarantine.remarks()

    def _nothing_runs(self) -> bool:
        return not self._suspect.is_set() and not self._any_busy()

    def _suspect_engine(self) -> None:
        self._suspect.set()
        self._wake.set()

    def _ask_engine(self) -> InfrastructureError | None:
        """What is wrong with the engine, asked if a run has failed through our fault, or the lookout has noticed."""
        if self._suspect.is_set():
            self._pulse.expect(QUESTION_S)
            try:
                self._engine.check()
            except InfrastructureError as error:
                return error
            self._suspect.clear()
            self._pulse.expect()
        return None

    def _ask_disk(self) -> InfrastructureError | None:
        """Which disk has too little room; that costs two system calls, so it is asked at every look."""
        try:
            self._check_disk()
        except InfrastructureError as error:
            return error
        return None

    def _lose_name(self) -> None:
        """Another daemon goes by this host's name: what runs here is lost, which the heartbeat finds out."""
        self._doubt = True
        self._reservations.forget()
        self._keeper.nudge()

    def _claim(self, store: Store, orders: Orders, *, able: bool) -> Claims:
        """Claim until nothing is free or nothing is there; the last answer. Asks at least once, as a sign of life."""
        config = self._settings.now
        while True:
            claiming = able and not orders.leave.is_set()
            if claiming:
                self._reservations.renew(store)
            else:
                self._reservations.forget()
            offer = self._capacity.offer() if claiming else NOTHING
            ahead = self._next_desk(offer) if claiming else None
            if ahead is not None:
                names = self._capacity.names([ahead])
                unranked = offer.unranked | (set() if self._capacity.ranks(ahead) else set(names))
                offer = replace(offer, slots={**offer.slots, **dict.fromkeys(names, 1)}, unranked=unranked)
            asked_s = time.monotonic()
            claims = store.claim(
                host=config.host_name,
                slots=offer.slots,
                lease_s=config.lease_s,
                at_most=offer.at_most,
                instance=self._instance,
                unranked=offer.unranked,
            )
            self._heed_clock(claims, asked_s)
            jobs = claims.jobs if ahead is None else self._give_ahead(store, ahead, claims.jobs)
            for job, desk in self._capacity.places(jobs):
                desk.give(self._keeper.hold(job))
            for unreadable in claims.unreadable:
                self._refuse(store, unreadable)
            # Asked before slots come free again: however short the jobs are, what else a turn is for gets its turn.
            full = not self._capacity.free()
            if claims.jobs:
                self._gather()
            if claims.draining or not claims.registered:
                self._reservations.forget()
                return claims
            if not claims.jobs and not claims.unreadable and not self._reservations.ended(store):
                return claims
            if claims.jobs and full:
                return claims

    def _heed_clock(self, claims: Claims, asked_s: float) -> None:
        """Spare the leases that have ended only because the server's clock was put forward."""
        if claims.now_s is None:
            return
        jump_s = self._server_clock.jump_s(claims.now_s, asked_s=asked_s, answered_s=time.monotonic())
        if jump_s > _JUMP * self._settings.now.lease_s:
            self._spare_leases()
            if (left_out := self._sparing.due("jump")) is not None:
                _log.warning(
                    "the database server's clock was put forward: leases get time to be renewed",
                    by_s=round(jump_s, 1),
                    left_out=left_out,
                )

    def _gather(self) -> None:
        """After a claim that brought jobs: let slots come free that are about to."""
        self._all_free.clear()
        if self._any_busy():
            self._all_free.wait(GATHER_S)

    def _next_desk(self, offer: Offer) -> Desk | None:
        """The busy slot that takes a job beside its run, if any; not where one choice takes away another."""
        if offer.at_most is not None:
            return None
        return self._ahead.desk(offer.slots, self._quarantine.reasons)

    def _give_ahead(self, store: Store, desk: Desk, jobs: Sequence[Job]) -> Sequence[Job]:
        """Give the job that was claimed for a busy slot to that, or back to the queue; the other jobs."""
        others = []
        for job in jobs:
            if self._registry.get(job.gpu_type).name != desk.slot.gpu_type or not desk.busy:
                others.append(job)
            elif self._ahead.keeps(desk, job):
                _log.info("job taken beside a run, to be built", job=job.id, slot=desk.slot.name)
                desk.give(self._keeper.hold(job, ahead=True))
            else:
                lease = self._keeper.hold(job, running=False)
                try:
                    self._announcer.ended(
                        job, store.release(job, reason="its host is busy, and nothing is to be built")
                    )
                except StaleAttemptError as error:
                    _log.warning("job is no longer ours", error=str(error))
                finally:
                    self._keeper.drop(lease)
        return others

    def _refuse(self, store: Store, unreadable: Unreadable) -> None:
        """Fail a job that this release makes no sense of: another one may, and else it ends with the cause."""
        job, cause = unreadable.claimed, unreadable.cause
        _log.error("a job cannot be read and is failed", job=job.id, attempt=job.attempt, cause=cause)
        try:
            ended = store.fail(job, error=f"the job cannot be read: {cause}", report=None, slot=NO_SLOT)
        except StaleAttemptError as error:
            _log.warning("job is no longer ours", error=str(error))
        else:
            self._announcer.ended(job, ended)

    def _put_back_what_nobody_heard_of(self, store: Store) -> None:
        """After an outage: jobs of a claim whose answer was lost run in this host's name, and on none of its slots."""
        # The outage may have been long enough for another daemon to have taken the name, and then the jobs are its own.
        self._startup.register(store)
        released = store.recover(
            host=self._settings.now.host_name,
            keep=[lease.job.key for lease in self._keeper.held()],
            instance=self._instance,
        )
        for job in released:
            self._tell_of(job)
        if released and (left_out := self._sparing.due("released")) is not None:
            _log.warning(
                "claims were not answered: their jobs are queued again", count=len(released), left_out=left_out
            )
        self._doubt = False
        self._spare_leases()

    def _tell_of(self, job: Reclaimed) -> None:
        """Frontends hear what became of a job that was taken back, and hosts that there is work."""
        self._announcer.event(events.reclaimed(job))
        if job.state is JobState.QUEUED:
            self._announcer.wake(job.gpu_type)

    def _spare_leases(self) -> None:
        """After an outage expired leases get time to be renewed: those who hold them were cut off as well."""
        self._grace_until_s = time.monotonic() + self._settings.now.lease_s

    def _reclaim(self, store: Store, claims: Claims) -> None:
        """Put jobs with expired leases back into the queue, a little after a claim has said that there are some."""
        if not claims.overdue:
            self._reclaim_at_s = None
            return
        now_s = time.monotonic()
        if self._reclaim_at_s is None:
            self._reclaim_at_s = max(now_s + between_s(0.0, _RECLAIM_SPREAD_S), self._grace_until_s)
        if now_s < self._reclaim_at_s:
            return
        self._reclaim_at_s = None
        reclaimed = store.reclaim()
        for job in reclaimed:
            _log.warning("its lease had expired", job=job.job_id, state=job.state)
            self._tell_of(job)
        if reclaimed:
            self._wake.set()

    def _gap_s(self) -> float:
        low, high = _POLL_SPREAD
        poll_s = self._settings.now.poll_s
        gap_s = between_s(low * poll_s, high * poll_s)
        if self._reclaim_at_s is not None:
            gap_s = min(gap_s, max(0.0, self._reclaim_at_s - time.monotonic()))
        return gap_s

    def _pause(self, period_s: float, orders: Orders) -> None:
        """Wait after a failure: wake-ups do not shorten it, orders do."""
        end_s = time.monotonic() + period_s
        self._pulse.expect(period_s + STEP_S)
        while not self._over(orders) and (left_s := end_s - time.monotonic()) > 0:
            self._wake.wait(left_s)
            self._wake.clear()

    def _say(self, claims: Claims, orders: Orders) -> None:
        if orders.rebuild is not None:
            self.readiness.paused(f"new configuration ({orders.rebuild}): {self._running()} runs finish first")
        elif claims.draining:
            self.readiness.paused(f"draining: {claims.drain_reason or 'no reason was given'}")
        elif not self._capacity.usable():
            away = self._quarantine.reasons()
            self.readiness.not_ready(unusable(self._quarantine.causes()), reason="; ".join(away.values()))
        else:
            self.readiness.working(self._status())

    def _running(self) -> int:
        """How many jobs are neither settled nor safe in the spool."""
        return sum(worker.busy for worker in self._workers()) + self._settler.pending

    def _status(self) -> str:
        away, worse = self._quarantine.reasons(), self._quarantine.remarks()
        return "; ".join(
            (
                self._serving,
                *(f"{slot} not used: {why}" for slot, why in away.items()),
                *(f"{slot} ranks nothing: {why}" for slot, why in worse.items() if slot not in away),
            )
        )

    # -- the way out ---------------------------------------------------------------------------------------------

    def _drain(self, orders: Orders) -> Ending:
        """Let running jobs finish, or give them back."""
        self._give_back_what_has_not_begun()
        running = self._running()
        self.readiness.stopping(f"finishing {running} runs" if running else "nothing is running")
        if self._idle_within(lambda: self._settings.now.drain_timeout_s, orders.abort):
            return Ending.CLEAN
        _log.warning("running jobs are given back", told_to=orders.abort.is_set(), runs=self._running())
        self._keeper.stop_all(StopReason.SHUTDOWN)
        if self._idle_within(lambda: ABORT_S):
            return Ending.CLEAN
        self._give_up.set()
        self._settler.nudge()
        if self._idle_within(lambda: JOIN_S):
            return Ending.CLEAN
        lost = self._settler.rescue()
        left = [worker.slot.name for worker in self._workers() if worker.busy]
        if left or lost:
            _log.error(
                "runs did not stop, or their results could not be written; their leases will expire",
                slots=left,
                jobs=[job.id for job in lost],
            )
        return Ending.LEFT_RUNS if left or lost else Ending.CLEAN

    def _give_back_what_has_not_begun(self) -> None:
        for desk in self._desks:
            desk.give_back()

    def _idle_within(self, period_s: Callable[[], float], interrupt: threading.Event | None = None) -> bool:
        began_s = time.monotonic()
        while self._running():
            self._pulse.expect()
            left_s = began_s + period_s() - time.monotonic()
            if left_s <= 0 or (interrupt is not None and interrupt.is_set()):
                return False
            # A reload may shorten the period meanwhile.
            self._wake.wait(min(left_s, 1.0))
            self._wake.clear()
        return True

    def _unregister(self, store: Store) -> None:
        if not self._startup.registered:
            return
        try:
            self._startup.unregister(store)
        except InfrastructureError as error:
            _log.warning("the database could not be told that this host stops", error=str(error))

    def _halt(self) -> None:
        # Each thread is waited for.
        self._pulse.expect(QUESTION_S)
        self._threads.halt.set()
        for nudge in (self._announcer.nudge, self._keeper.nudge, self._delivery.nudge, self._settler.nudge):
            nudge()
        for worker in self._workers():
            worker.nudge()
        self._threads.join(JOIN_S)
        self._settler.close()
