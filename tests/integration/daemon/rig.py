"""A daemon in a thread, on a real database, with an evaluator and an engine that do as the test says."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from runner.base.config import Config
from runner.base.errors import CancelledByRequest, EngineUnavailableError, EvaluationError
from runner.base.gpu_types import Registry
from runner.base.model import Job, JobResult, JobState, Progress, Slot, SubmissionJob, Verdict
from runner.daemon import Daemon, ExitReason, ShutdownControl
from runner.daemon.interfaces import StoreFactory
from runner.daemon.outcomes.spool import Spool
from runner.daemon.serve import require_schema
from runner.devices.quarantine import Quarantine
from runner.extras.boards.store import BoardStore
from runner.store import Store, SubmissionView
from runner.store.records import JobView
from tests.integration.store.conftest import result, run_record
from tests.support.waiting import PATIENCE_S, wait_until

#: In place of runner.job: with the end of each lease where it is kept, in the job's row or its host's.
JOBS = (
    "(SELECT j.id, j.submission_id, j.state, j.attempt, j.started_at,"
    " CASE j.lease_expires_at WHEN 'infinity' THEN l.expires_at ELSE j.lease_expires_at END AS lease_expires_at"
    " FROM runner.job j LEFT JOIN runner.lease l ON l.host = j.lease_owner) AS job"
)

Script = Callable[[Job, threading.Event, Callable[[Progress], None]], JobResult]


def accepted(**report: object) -> JobResult:
    """What an evaluation of mode test finds when all is well."""
    return result(Verdict.ACCEPTED, run_record("test"), report=report)


def at_once(_job: Job, _cancel: threading.Event, _on_progress: Callable[[Progress], None]) -> JobResult:
    """Accept every job."""
    return accepted()


def fails(error: Exception, *, attempts: int = 1, before: Callable[[], object] = lambda: None) -> Script:
    """A script whose first attempts at a job end so; later ones accept it. `before`: called before each failure."""

    def script(job: Job, cancel: threading.Event, on_progress: Callable[[Progress], None]) -> JobResult:
        if job.attempt > attempts:
            return at_once(job, cancel, on_progress)
        before()
        raise error

    return script


def cpu_slots(count: int) -> tuple[Slot, ...]:
    """Slots without devices, with a core each."""
    return tuple(Slot(name=f"cpu{core}", gpu_type="CPU", devices=(), cpus=(core,)) for core in range(count))


class Gate:
    """A script whose runs begin, say so, and end when the test (or a cancel) says so."""

    def __init__(self, *, heeds_cancel: bool = True) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()
        self.go = threading.Event()
        self._heeds_cancel = heeds_cancel

    def __call__(self, _job: Job, cancel: threading.Event, _on_progress: Callable[[Progress], None]) -> JobResult:
        """Run until told to go on."""
        self.begun.set()
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.go.wait(0.02):
            if cancel.is_set():
                self.cancelled.set()
                if self._heeds_cancel:
                    raise CancelledByRequest("told to")
            if time.monotonic() > deadline_s:
                raise AssertionError("the test never opened the gate")
        return accepted()


@dataclass
class Evaluator:
    """Runs a script and remembers what it was given."""

    script: Script = at_once
    seen: list[tuple[int, int, str]] = field(default_factory=list)
    prepared: int = 0
    tried_out: list[str] = field(default_factory=list)
    #: Why containers cannot be made.
    gone: str | None = None
    can_refuse: bool = False

    def refuse(self, job: SubmissionJob, slot: Slot, *, cancel: threading.Event) -> JobResult | None:
        """Nothing is checked early."""
        raise NotImplementedError

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Count, if it is there."""
        self.check()
        self.prepared += len(list(slots))

    def try_out(self, slot: Slot, *, cancel: threading.Event) -> None:
        """Count."""
        assert not cancel.is_set()
        self.tried_out.append(slot.name)

    def check(self) -> None:
        """All is there, or not."""
        if self.gone is not None:
            raise EvaluationError(self.gone)

    @contextmanager
    def evaluate(
        self, job: Job, slot: Slot, *, cancel: threading.Event, on_progress: Callable[[Progress], None]
    ) -> Iterator[JobResult]:
        """Do as the script says."""
        self.seen.append((job.id, job.attempt, slot.name))
        yield self.script(job, cancel, on_progress)


@dataclass
class Engine:
    """An engine that answers while `up` is set."""

    up: threading.Event = field(default_factory=threading.Event)
    checks: int = 0
    reaped: int = 0

    def check(self) -> None:
        """Answer, or not."""
        self.checks += 1
        if not self.up.is_set():
            raise EngineUnavailableError("no engine at unix:///nowhere; start it")

    def reap(self) -> int:
        """Nothing is left over."""
        self.reaped += 1
        return 0


class Rig:
    """One daemon and the database it serves."""

    def __init__(self, database_url: str, daemon_url: str | None = None, **settings: Any) -> None:  # noqa: ANN401
        self.url = database_url
        #: What the daemon connects to: the database, or a proxy before it.
        self.daemon_url = daemon_url or database_url
        self.config = Config(
            **{
                "host_name": "test-host",
                "state_dir": Path(tempfile.mkdtemp()),
                # No heartbeat is so late on a busy machine that the daemon takes its own job back.
                "lease_s": 30.0,
                "heartbeat_s": 0.25,
                "poll_s": 0.2,
                **settings,
            }
        )
        # As `serve` makes it.
        self.config.state_dir.mkdir(parents=True, exist_ok=True)
        self.instance = f"instance of {self.config.host_name}"
        self.registry = Registry.load()
        self.evaluator = Evaluator()
        self.engine = Engine()
        self.engine.up.set()
        self.slots = cpu_slots(1)
        self.store = BoardStore(database_url, application_name="test")
        self.spool = Spool(self.config.state_dir / "spool")
        self.quarantine = Quarantine(retry_s=0.05)
        self.control = ShutdownControl()
        self.check_disk: Callable[[], object] = lambda: None
        self.exit_reason: ExitReason | None = None
        self.store_factory: StoreFactory = lambda purpose: Store(
            self.daemon_url, application_name=f"daemon {purpose}", writes=True
        )
        self.daemon: Daemon | None = None
        self._thread: threading.Thread | None = None

    # -- the daemon

    def start(self, *, ready: bool = True) -> Rig:
        """Start the daemon; by default, wait until it serves."""
        self.daemon = Daemon(
            self.config,
            store_factory=self.store_factory,
            evaluator=self.evaluator,
            engine=self.engine,
            check_database=lambda: require_schema(self.daemon_url),
            registry=self.registry,
            slots=self.slots,
            spool=self.spool,
            instance=self.instance,
            quarantine=self.quarantine,
            check_disk=self.check_disk,
        )
        self._thread = threading.Thread(target=self._run, name="daemon", daemon=True)
        self._thread.start()
        if ready:
            assert self.daemon.readiness.ready.wait(PATIENCE_S)
        return self

    def _run(self) -> None:
        assert self.daemon is not None
        self.exit_reason = self.daemon.run(self.control)

    def begin(self, *, heeds_cancel: bool = True, mode: str = "test") -> tuple[Gate, int]:
        """Submit a job, start the daemon if need be, and wait until the run has begun; its gate, its submission."""
        gate = self.evaluator.script = Gate(heeds_cancel=heeds_cancel)
        submission = self.submit(mode=mode)
        if self.daemon is None:
            self.start()
        assert gate.begun.wait(PATIENCE_S)
        return gate, submission

    @property
    def waiting_for(self) -> str | None:
        """What the daemon is waiting for."""
        assert self.daemon is not None
        return self.daemon.readiness.waiting_for

    def join(self) -> int:
        """Wait for the daemon's end; its exit code."""
        assert self._thread is not None
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return 0 if self.exit_reason is ExitReason.CLEAN else 1

    def stop(self) -> int:
        """Stop the daemon; its exit code."""
        self.control.request_stop()
        return self.join()

    def close(self) -> None:
        """Stop whatever still runs."""
        self.control.request_abort()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
        self.store.close()
        shutil.rmtree(self.config.state_dir, ignore_errors=True)

    # -- the queue

    def board(self, gpus: Sequence[str] = ("CPU",)) -> None:
        """Publish the leaderboard `b`."""
        self.store.sync_gpu_types(
            [(entry.name, entry.vendor.value, entry.aliases, entry.description) for entry in self.registry.all()]
        )
        self.store.create_board(
            name="b", deadline=datetime.now(UTC) + timedelta(days=1), task={"lang": "py"}, description="", gpus=gpus,
            templates={}, extra=None,
        )  # fmt: skip

    def submit(self, *, gpu_type: str = "CPU", code: bytes = b"pass", priority: int = 0, mode: str = "test") -> int:
        """Queue one job of mode test, or of another; its submission's id."""
        return self.store.submit(
            leaderboard="b", user_id="u", file_name="a.py", code=code, mode=mode, gpu_types=[gpu_type], user_name=None,
            priority=priority,
        )  # fmt: skip

    def claim(self, *, host: str = "test-host", lease_s: float = 3600.0) -> Job:
        """The next job, as a daemon claims it that is not there any more."""
        (job,) = self.store.claim(host=host, slots={"CPU": 1}, lease_s=lease_s).jobs
        return job

    def view(self, submission_id: int) -> SubmissionView:
        """A submission as it is now."""
        return self.store.submission(submission_id)

    def job(self, submission_id: int) -> JobView:
        """The only job of a submission, as it is now."""
        (job,) = self.view(submission_id).jobs
        return job

    def done(self, submission_id: int) -> JobView:
        """The only job of a submission, once that is over."""
        self.wait_done(submission_id)
        return self.job(submission_id)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something is so."""
        wait_until(condition, what)

    def wait_done(self, *submission_ids: int) -> list[SubmissionView]:
        """Wait until submissions are over."""
        for submission_id in submission_ids:
            self.wait_for(
                lambda submission_id=submission_id: all(  # type: ignore[misc]  # mypy: default in lambda
                    job.state in ("done", "cancelled") for job in self.view(submission_id).jobs
                ),
                f"submission {submission_id} is over",
            )
        return [self.view(submission_id) for submission_id in submission_ids]

    def wait_through_retries(self, submission_id: int) -> None:
        """Wait until a submission of one job is over, without the pauses between its attempts."""

        def hurried() -> bool:
            self.sql("UPDATE runner.job SET not_before = NULL WHERE state = 'queued'")
            return self.view(submission_id).jobs[0].state is JobState.DONE

        self.wait_for(hurried, "the last attempt failed")

    def sql(self, statement: str, **parameters: object) -> list[dict[str, Any]]:
        """Do something to the database that no daemon would."""
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description is not None else []

    def expire_leases(self, *, host: str = "test-host") -> None:
        """Let a host's leases be over, however long they last; it must not be able to renew them."""
        self.sql("UPDATE runner.lease SET expires_at = now() - interval '1 second' WHERE host = %(host)s", host=host)
        self.sql(
            "UPDATE runner.job SET lease_expires_at = now() - interval '1 second'"
            " WHERE lease_owner = %(host)s AND lease_expires_at < 'infinity'",
            host=host,
        )

    @contextmanager
    def locked(self, statement: str) -> Iterator[None]:
        """Hold what a statement locks."""
        with psycopg.connect(self.url) as connection:
            connection.execute(statement.encode())
            yield

    def kill_connections(self) -> int:
        """Terminate every connection of the daemon; how many."""
        killed = self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'daemon%%'"
        )
        return len(killed)


#: Makes a rig of the test's database, stopped when the test ends: `make_rig(**settings)`.
MakeRig = Callable[..., Rig]
