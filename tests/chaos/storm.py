"""The storm: a server and its standby, hosts behind proxies, a frontend, faults by plan, and the books at the end.

One host and the frontend reach the server through PgBouncer, if there is one.

Everything it starts is gone when `Storm.run` returns or raises: daemons die with this process even if it is killed.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import psycopg

from runner.daemon.outcomes.writer import WAITING_PER_SLOT
from runner.extras.boards.store import BoardStore
from runner.store import migrate
from tests.chaos import faults, ledger, producer
from tests.chaos.daemon import Spec
from tests.chaos.faults import CUTS, Fault, Kind
from tests.chaos.hosts import Host
from tests.chaos.producer import Order, Producer
from tests.chaos.proxy import Proxy
from tests.chaos.server import Cluster
from tests.chaos.upgrades import Upgrades
from tests.support.boards import publish
from tests.support.pooler import PGBOUNCER, Pooler
from tests.support.seeds import any_seed
from tests.support.waiting import PATIENCE_S

#: Results that may die with a killed daemon for each of its slots: one that it hands over, and those not written yet.
LOST_PER_SLOT: Final = 1 + WAITING_PER_SLOT
#: How often each is asked for.
GPU_TYPES: Final = {"H100": 6, "MI300": 4, "L4": 6, "L4x4": 1}
#: The GPU type of each slot and its devices.
Slots = tuple[tuple[str, tuple[int, ...]], ...]
_BOX: Final[Slots] = (("L4", (0,)), ("L4", (1,)), ("L4x4", (2, 3, 5, 6)))
#: Each GPU type is on two hosts at least: a job that failed on one is tried on another.
HOSTS: Final[dict[str, Slots]] = {
    "a": (("H100", (0,)), ("H100", (1,)), ("MI300", (2,)), ("MI300", (3,))),
    "b": (*_BOX, ("MI300", (4,))),
    "c": (*_BOX, ("H100", (4,))),
    "d": (("H100", (0,)), ("MI300", (1,)), ("L4", (2,))),
}
#: The host behind the pooler.
_POOLED: Final = "b"
_DATABASE: Final = "postgres"
#: The login of what goes through the pooler, which sets nothing in its sessions itself.
_POOLED_LOGIN: Final = """
CREATE ROLE pooled LOGIN SUPERUSER;
ALTER ROLE pooled SET statement_timeout = '60s';
ALTER ROLE pooled SET lock_timeout = '30s';
ALTER ROLE pooled SET idle_in_transaction_session_timeout = '60s';
"""
_TICK_S: Final = 0.05
#: How long daemons may take to serve at the beginning, on a busy machine.
_READY_S: Final = PATIENCE_S
#: How long a standby may take until it has everything.
_STANDBY_S: Final = 120.0
#: More than the queue of notifications holds.
_NOTIFICATIONS: Final = 200
#: Events and late results of the storm are kept.
_KEEP_S: Final = 86_400.0
#: What differs between two violations of one kind.
_NUMBER: Final = re.compile(r"[\d.:-]+")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How hard it blows."""

    seed: int = field(default_factory=any_seed)
    #: How many of HOSTS: three or four.
    hosts: int
    submissions: int
    storm_s: float
    #: Between two faults, on average.
    gap_s: float
    lease_s: float
    #: How long a longer evaluation takes, on average.
    work_s: float
    #: Once nothing breaks any more, everything is over within this time.
    settle_s: float
    #: What breaks.
    kinds: tuple[Kind, ...] = tuple(Kind)


@dataclass(kw_only=True)
class Report:
    """What happened. The storm was survived exactly when there are no violations."""

    seed: int
    plan: tuple[Fault, ...]
    #: How often each kind of fault began.
    injected: Counter[Kind] = field(default_factory=Counter)
    #: Database connections that were ended.
    terminated: int = 0
    counts: dict[str, int | float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def table(self) -> str:
        """For people."""
        lines = [f"seed {self.seed}", "", "fault                                      times"]
        lines += [f"{kind.value:<40} {times:>7}" for kind, times in sorted(self.injected.items())]
        lines += [f"{'all':<40} {self.injected.total():>7}"]
        lines += ["", "what happened                              count"]
        lines += [f"{name:<54} {count:>7}" for name, count in self.counts.items()]
        lines += ["", f"violations: {len(self.violations)}", *(f"  - {line}" for line in self.violations[:50])]
        if len(self.violations) > 50:
            kinds = Counter(_NUMBER.sub("#", line) for line in self.violations)
            lines += ["of all these:", *(f"  - {times} times {line}" for line, times in kinds.most_common(50))]
        return "\n".join(lines)


class Storm:
    """One storm. `run` may be called once."""

    def __init__(self, settings: Settings, *, say: Callable[[str], None] = lambda _line: None) -> None:
        self._settings = settings
        self._say = say
        self._names = tuple(HOSTS)[: settings.hosts]
        plan = faults.draw(
            seed=settings.seed,
            hosts=self._names,
            storm_s=settings.storm_s,
            gap_s=settings.gap_s,
            lease_s=settings.lease_s,
            kinds=settings.kinds if PGBOUNCER else [kind for kind in settings.kinds if kind is not Kind.POOLER],
        )
        self.report = Report(seed=settings.seed, plan=plan)
        self._stack = ExitStack()
        self._directory = Path(tempfile.mkdtemp(prefix="kernel-runner-chaos-hosts-"))
        self._stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        self._hosts: dict[str, Host] = {}
        self._drained: dict[str, datetime] = {}
        #: Connections that a fault holds open.
        self._held: dict[Fault, psycopg.Connection] = {}
        self._pooler: Pooler | None = None
        #: A fail-over waits until the standby has everything.
        self._fail_over_due = False
        #: The frontend waits after so many submissions until it is let go on; None: never.
        self._hold_after: int | None = None
        #: What else happened, for the report.
        self.extra: dict[str, int] = {}

    def run(self) -> Report:
        """Blow, settle, and check the books.

        Raises:
            RuntimeError: something could not even be started; what the daemons logged is in the message.
        """
        with self._stack:
            settings = self._settings
            self._cluster = self._stack.enter_context(Cluster())
            self._cluster.start()
            self._url = self._cluster.url(_DATABASE)
            migrate(self._url)
            with ledger.connect(self._url) as db:
                # Time is short in a storm, for leases and pauses alike.
                db.execute("UPDATE runner.retry SET pause_s = %s", (settings.lease_s / 5,))
            with self._operator() as store:
                publish(store, producer.BOARD, tuple(GPU_TYPES))
            if PGBOUNCER:
                with ledger.connect(self._url) as db:
                    db.execute(_POOLED_LOGIN)
                folder = self._cluster.socket_path.parent
                self._pooler = self._stack.enter_context(
                    Pooler(host=str(folder), port=5432, user="pooled", pool_size=10)
                )
                self._pooler.wait(self._url)
            for name in self._names:
                self._add_host(name, HOSTS[name])
            self._wait_for_hosts()
            orders = producer.draw(
                seed=settings.seed,
                count=settings.submissions,
                over_s=settings.storm_s * 0.9,
                gpu_types=GPU_TYPES,
                work_s=settings.work_s,
                lease_s=settings.lease_s,
            )
            self._frontend_proxy, direct = self._proxies(pooled=True)
            frontend = self._frontend = Producer(
                self._frontend_proxy.url(_DATABASE),
                orders,
                direct_host=None if direct is None else f"127.0.0.1:{direct.port}",
                hold_after=self._hold_after,
            )
            self._stack.callback(frontend.close)
            self._upgrades = self._stack.enter_context(Upgrades(self._url))
            if Kind.FAILOVER in settings.kinds:
                self._cluster.keep_standby()
            self._watch = ledger.Watch(self._url)
            self._stack.callback(self._watch.close)
            frontend.start()
            self._watch.start()
            self._blow()
            settled_s = self._settle(frontend)
            self._watch.close()
            self._books(orders, frontend, settled_s)
        return self.report

    def _operator(self) -> AbstractContextManager[BoardStore]:
        """A store with a connection of its own: older ones may have died with the server."""
        return closing(BoardStore(self._url, application_name="storm"))

    # -- the world ------------------------------------------------------------------------------------------------

    def _add_host(self, name: str, slots: Slots) -> None:
        settings = self._settings
        proxy, direct = self._proxies(pooled=name == _POOLED)
        spec = Spec(
            name=name,
            database_url=proxy.url(_DATABASE),
            direct_host=None if direct is None else f"127.0.0.1:{direct.port}",
            state_dir=str(self._directory / name),
            slots=slots,
            lease_s=settings.lease_s,
            heartbeat_s=settings.lease_s / 6,
            poll_s=0.5,
            drain_timeout_s=10.0,
        )
        host = Host(spec, [proxy] if direct is None else [proxy, direct])
        self._stack.callback(host.close)
        self._hosts[name] = host
        host.start()

    def _proxies(self, *, pooled: bool) -> tuple[Proxy, Proxy | None]:
        """The network of one process: to the server; or to the pooler, and then a second one to the server."""
        direct = self._stack.enter_context(Proxy(self._cluster.socket_path))
        if self._pooler is None or not pooled:
            return direct, None
        return self._stack.enter_context(Proxy(self._pooler.socket_path)), direct

    def _wait_for_hosts(self) -> None:
        end_s = time.monotonic() + _READY_S
        while not self._all_registered():
            for host in self._hosts.values():
                host.look()
            broken = [line for host in self._hosts.values() for line in host.violations]
            if broken or time.monotonic() > end_s:
                logged = "\n".join(str(line) for host in self._hosts.values() for line in host.log())
                raise RuntimeError(f"the daemons did not start: {broken}\n{logged}")
            time.sleep(_TICK_S)

    def _all_registered(self) -> bool:
        with self._operator() as store:
            return {line.name for line in store.hosts()} == set(self._hosts)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _blow(self) -> None:
        """Work off the plan."""
        begun_s = time.monotonic()
        moments = [(fault.at_s, fault, self._begin) for fault in self.report.plan]
        moments += [(fault.end_s, fault, self._end) for fault in self.report.plan]
        for at_s, fault, action in sorted(moments, key=lambda moment: moment[0]):
            self._work_until(begun_s + at_s)
            action(fault)
        self._work_until(begun_s + self._settings.storm_s)
        if self._fail_over_due:
            self._fail_over(_STANDBY_S)

    def _work_until(self, end_s: float) -> None:
        """Let everything work until then, on the monotonic clock."""
        while (left_s := end_s - time.monotonic()) > 0:
            self._look()
            time.sleep(min(left_s, _TICK_S))

    def _look(self) -> None:
        for host in self._hosts.values():
            host.look()
        if self._fail_over_due:
            self._fail_over(0.0)

    def _begin(self, fault: Fault) -> None:
        self._say(str(fault))
        if fault.host is None:
            self._begin_shared(fault)
        else:
            host = self._hosts[fault.host]
            match fault.kind:
                case Kind.KILL:
                    host.kill()
                case Kind.TERM:
                    host.terminate()
                case Kind.FREEZE:
                    host.freeze()
                case Kind.DRAIN:
                    with self._operator() as store:
                        store.drain(fault.host, reason="storm")
                    self._drained[fault.host] = self._now()
                case Kind.RESET:
                    host.cut(CUTS[fault.kind])
                    self._frontend_proxy.cut(CUTS[fault.kind])
                case _:
                    host.cut(CUTS[fault.kind])
        if fault.kind is not Kind.FAILOVER:
            self.report.injected[fault.kind] += 1

    def _begin_shared(self, fault: Fault) -> None:
        """Break what all hosts share."""
        match fault.kind:
            case Kind.BACKENDS:
                self.report.terminated += self._terminate_backends()
            case Kind.CRASH:
                self._cluster.crash()
                time.sleep(fault.for_s)
                self._cluster.start()
            case Kind.FAILOVER:
                # Two that come before there is a standby are one.
                self._fail_over_due = True
            case Kind.SNAPSHOT:
                self._hold_snapshot(fault)
            case Kind.NOTIFICATIONS:
                self._fill_notifications(fault)
            case Kind.MIGRATION:
                self._upgrades.begin()
            case Kind.POOLER if self._pooler is not None:
                self._pooler.stop()
            case _:
                raise AssertionError(fault)

    def _end(self, fault: Fault) -> None:
        if fault.host is None:
            self._end_shared(fault)
            return
        host = self._hosts[fault.host]
        match fault.kind:
            case Kind.KILL:
                host.start()
            case Kind.FREEZE:
                host.thaw()
            case Kind.DRAIN:
                self._check_drained(fault.host)
                with self._operator() as store:
                    store.undrain(fault.host)
            case kind if kind in CUTS:
                host.heal(late=fault.late)

    def _end_shared(self, fault: Fault) -> None:
        if fault.kind is Kind.POOLER and self._pooler is not None:
            self._pooler.start()
        held = self._held.pop(fault, None)
        if held is not None:
            held.close()
        if fault.kind is Kind.NOTIFICATIONS:
            # As the daemons do once an hour.
            with self._operator() as store:
                store.reap(keep_s=_KEEP_S)

    def _fail_over(self, patience_s: float) -> None:
        """Let the primary crash and the standby take over, if it has everything by then; others break meanwhile."""
        if self._cluster.wait_for_synchronous(patience_s):
            self._fail_over_due = False
            self._cluster.fail_over()
            self.report.injected[Kind.FAILOVER] += 1

    def _hold_snapshot(self, fault: Fault) -> None:
        """Leave a transaction open that has read everything; a late one has also written."""
        held = psycopg.connect(self._url)
        self._held[fault] = held
        held.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        held.execute("SELECT count(*) FROM runner.job")
        if fault.late:
            held.execute("SELECT pg_current_xact_id()")

    def _fill_notifications(self, fault: Fault) -> None:
        """Listen and leave a transaction open; send more notifications than the queue holds."""
        held = psycopg.connect(self._url)
        self._held[fault] = held
        held.execute("LISTEN storm")
        held.commit()
        held.execute("SELECT 1")
        with psycopg.connect(self._url, autocommit=True) as other:
            try:
                for _ in range(_NOTIFICATIONS):
                    other.execute("SELECT pg_notify('storm', repeat('x', 7900))")
            except psycopg.OperationalError:
                return
        raise AssertionError("the queue of notifications was not full")

    def _terminate_backends(self) -> int:
        """End a few of the daemons' connections, those first that are at work."""
        statement = (
            "SELECT count(pg_terminate_backend(pid)) AS ended FROM (SELECT pid FROM pg_stat_activity"
            " WHERE application_name LIKE 'chaos %' ORDER BY state = 'idle', random() LIMIT 3) AS chosen"
        )
        ended = 0
        with ledger.connect(self._url) as db:
            for _ in range(10):
                ended += sum(int(row["ended"]) for row in db.execute(statement))
                time.sleep(0.02)
        return ended

    def _now(self) -> datetime:
        with ledger.connect(self._url) as db:
            moment = db.execute("SELECT clock_timestamp() AS now").fetchone()
        if moment is None:
            raise RuntimeError("the database has no clock")
        found: datetime = moment["now"]
        return found

    def _check_drained(self, name: str) -> None:
        with ledger.connect(self._url) as db:
            claims = ledger.claimed_since(db, name, self._drained.pop(name))
        if claims:
            self.report.violations.append(f"{name} claimed {claims} jobs while it was drained")

    # -- the end --------------------------------------------------------------------------------------------------

    def _settle(self, frontend: Producer) -> float:
        """Wait until nothing is open any more; seconds that took."""
        begun_s = time.monotonic()
        open_jobs = -1
        while time.monotonic() < begun_s + self._settings.settle_s:
            self._look()
            with ledger.connect(self._url) as db:
                (row,) = db.execute(
                    "SELECT count(*) AS open FROM runner.job WHERE state IN ('queued', 'running')"
                ).fetchall()
            open_jobs = int(row["open"])
            if frontend.finished and not open_jobs and self._upgrades.finished:
                break
            time.sleep(0.2)
        else:
            self.report.violations.append(
                f"{self._settings.settle_s:g} s after the last fault {open_jobs} jobs are open; "
                f"the frontend has {'finished' if frontend.finished else 'not finished'}; "
                f"{self._upgrades.done} of {self.report.injected[Kind.MIGRATION]} migrations are done"
            )
        took_s = time.monotonic() - begun_s
        for host in self._hosts.values():
            host.stop()
        return took_s

    def _amend(self, books: ledger.Books) -> ledger.Books:
        """The books with what this storm knows besides."""
        return books

    def _books(self, orders: Sequence[Order], frontend: Producer, settled_s: float) -> None:
        report = self.report
        hosts = tuple(self._hosts.values())
        with ledger.connect(self._url) as db:
            self._watch.look(db)
            found = ledger.read(
                db,
                orders,
                journals={host.name: list(host.journal()) for host in hosts},
                losses={host.name: host.kills * len(host.spec.slots) * LOST_PER_SLOT for host in hosts},
            )
        books = self._amend(found)
        report.violations += self._watch.violations
        report.violations += ledger.settled(books)
        if frontend.error is not None:
            report.violations.append(f"the frontend broke: {frontend.error!r}")
        if self._upgrades.error is not None:
            report.violations.append(f"a migration failed: {self._upgrades.error!r}")
        planned = {fault.kind for fault in report.plan}
        report.violations += [f"never injected: {kind}" for kind in planned if not report.injected[kind]]
        for host in hosts:
            report.violations += host.violations
            report.violations += [f"{host.name}: left in the spool: {path.name}" for path in host.spooled()]
            report.violations += [f"{host.name} logged: {line}" for line in host.log() if _is_alarming(line)]
        lines = [line for journal in books.journals.values() for line in journal]
        report.counts = {
            "submissions": len(orders),
            "jobs": len(books.jobs),
            "done": sum(job["state"] == "done" for job in books.jobs),
            "cancelled": sum(job["state"] == "cancelled" for job in books.jobs),
            "ended as internal_error": sum(job["verdict"] == "internal_error" for job in books.jobs),
            "rows of results": len(books.runs),
            "claims": sum(job["attempt"] for job in books.jobs),
            "executions begun": sum(line["what"] == "begun" for line in lines),
            "executions told to stop": sum(line["what"] == "stopped" for line in lines),
            "evaluated again": sum(job["replaces"] is not None for job in books.jobs),
            "rows replaced or taken out of the ranking": len(books.superseded),
            "attempts given back": sum(kinds.get("released", 0) for kinds in books.events.values()),
            **{f"- {reason}": times for reason, times in books.given_back.items()},
            "failures, retried or final": sum(job["failures"] for job in books.jobs),
            "reclaims": sum(job["reclaims"] for job in books.jobs),
            "stale results kept as evidence": len(books.stale),
            "results that are nowhere": len(
                {line["nonce"] for line in lines if line["what"] == "found"}
                - {job["report"]["nonce"] for job in books.jobs if (job["report"] or {}).get("nonce")}
                - books.stale
            ),
            "early checks": sum(line["what"] == "checked" for line in lines),
            "jobs refused early": len(ledger.refused_early(books)),
            "requests the frontend repeated": frontend.repeated,
            "looks at the books during the storm": self._watch.looks,
            "database connections ended": report.terminated,
            "migrations done": self._upgrades.done,
            "migrations that were begun again": self._upgrades.failed.total(),
            **{f"- {reason}": times for reason, times in sorted(self._upgrades.failed.items())},
            "seconds to settle": round(settled_s, 1),
            **self.extra,
        }


def _is_alarming(line: object) -> bool:
    """A traceback, or something that did not come from the log: nothing the storm does should look like a bug."""
    return isinstance(line, dict) and ("exception" in line or line.get("level") == "raw")
