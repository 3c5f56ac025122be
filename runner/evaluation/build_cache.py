"""Builds submissions ahead of their runs, each once, and keeps the build archive until the submission's jobs are done.

Owns the build workers (how many builds run at a time on cores that no slot uses), their containers, and the archives.
An archive is made by the submission itself. Only its public and its secret job on one GPU type and image share it. What
compilers left in the accepted public run goes to the secret run alone, in the place of the build's archive. An archive
is never inspected, and is bounded in number, size and age. The build of a group's candidate is for the caller alone and
is not kept here. Decides no verdict.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from runner.base import metrics
from runner.base.errors import CancelledByRequest, EngineUnavailableError
from runner.base.logs import get_logger
from runner.base.model import Slot
from runner.devices import spare_cpus
from runner.devices.quarantine import Quarantine
from runner.evaluation.build_plan import BuildPlan
from runner.evaluation.context import SubmissionContext
from runner.evaluation.leftovers import keep_out, remove
from runner.evaluation.secret import run_of, runs_of_build
from runner.evaluation.warm_pool import CANCEL_POLL_S
from sandbox.errors import EngineUnavailable, SandboxError
from sandbox.host.build_archive import BuildArchive
from sandbox.host.container import ContainerReport
from sandbox.host.engine import DockerEngine
from sandbox.spec import Ending

#: A second job that comes later builds again: usually it runs elsewhere, was cancelled, or waits for very long.
KEPT_S: Final = 900.0
#: The most bytes and archives of a host; the oldest is dropped first.
KEPT_BYTES: Final = 512 << 20
KEPT: Final = 64
#: Characters kept of a compiler's output; rows in the database hold less.
KEPT_OUTPUT: Final = 1 << 15
#: Stands for the slot's name in quarantine.
BUILD_WORKER: Final = "build worker"

_log = get_logger(__name__)

#: What is built, for log events and errors; `job` is the id of its job.
_What = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Build:
    """The outcome of a build."""

    #: None: the run compiles for itself.
    archive: BuildArchive | None
    #: The container's report; None: none was started.
    report: ContainerReport | None


@dataclass(kw_only=True)
class _Entry:
    """One submission on one GPU type. All fields but `build` belong to the cache's lock."""

    #: Held during the build; the submission's other job waits for it.
    building: threading.Lock = field(default_factory=threading.Lock)
    build: Build | None = None
    #: What compilers left in the public run; None: it was not accepted here, or they left nothing.
    caches: BuildArchive | None = None
    #: Which runs of the submission still need it.
    awaited: set[str]
    until_s: float


class BuildCache:
    """Threadsafe; one per host."""

    def __init__(self, engine: DockerEngine, quarantine: Quarantine, *, directory: Path, workers: int | None) -> None:
        """`directory`: where archives are. `workers`: builds at a time; 0: none; None: one if there are cores."""
        self._engine = engine
        self._quarantine = quarantine
        self._directory = directory
        self._workers = workers
        self._cpus: tuple[int, ...] = ()
        self._changed = threading.Condition()
        self._running = 0
        self._entries: dict[tuple[int, str, str, str], _Entry] = {}

    def arrange(self, slots: Iterable[Slot]) -> None:
        """Set the slots: cores that none of them uses are for builds."""
        self._cpus = spare_cpus(slots)

    @property
    def is_on(self) -> bool:
        """Whether submissions are built before their runs at all."""
        return self._workers != 0

    @property
    def workers(self) -> int:
        """How many builds may run beside the slots; 0: a build uses the cores of its job's slot."""
        return (1 if self._workers is None else self._workers) if self._cpus else 0

    def cpus(self, slot: Slot, *, beside: bool) -> tuple[int, ...]:
        """The cores on which a build runs, beside the slots or on the slot."""
        return self._cpus if beside else slot.cpus

    @property
    def running(self) -> int:
        """How many builds run beside the slots."""
        return self._running

    def close(self) -> None:
        """Drop all archives; a run that reads one keeps it until it is done."""
        with self._changed:
            self._entries.clear()

    def get(
        self,
        context: SubmissionContext,
        *,
        beside: bool,
        plan: BuildPlan,
        cancel: threading.Event,
    ) -> tuple[Build, int]:
        """The build of a job's submission; made now, unless its other job (public or secret) has made it.

        With it, how many nanoseconds it took here: 0 if the other job has made it. `plan` is on the cores that `cpus`
        returns: spare ones (`beside`), or those of the slot, which the caller holds.

        Raises:
            CancelledByRequest: it was cancelled, and the container is gone.
            EngineUnavailableError: no engine answers.
        """
        entry, built_ns = self._entry(context), 0
        what = {"job": context.job.id, "submission": context.job.submission}
        with _hold(entry.building, what, cancel):
            if entry.build is None:
                if beside:
                    entry.build, built_ns = self.build(plan, what=what, cancel=cancel)
                else:
                    entry.build, built_ns = self._make(what, plan, context.slot.name, cancel)
                self._evict(entry)
            return entry.build, built_ns

    def build(self, plan: BuildPlan, *, what: _What, cancel: threading.Event) -> tuple[Build, int]:
        """Build on spare cores; also, how many nanoseconds it took once a build worker was idle."""
        with self._build_worker(what, cancel):
            return self._make(what, plan, BUILD_WORKER, cancel)

    def new_archive(self) -> BuildArchive | None:
        """An empty archive for what a run leaves; None: the disk is full, and the run goes on without."""
        try:
            return BuildArchive(self._directory)
        except OSError as error:
            _log.warning("caches_not_kept", error=str(error))
            return None

    def drop_caches(self, context: SubmissionContext) -> None:
        """A public run begins: its secret run must not get what an earlier one left."""
        with self._changed:
            entry = self._entries.get(_key(context))
            if entry is not None:
                entry.caches = None

    def keep_caches(self, context: SubmissionContext, archive: BuildArchive) -> None:
        """Keep what compilers left in an accepted public run for the secret run of its submission."""
        if archive.refused is not None:
            _log.warning("caches_not_kept", error=archive.refused)
        if archive.size_bytes == 0:
            return
        entry = self._entry(context)
        entry.caches, entry.until_s = archive, time.monotonic() + KEPT_S
        self._evict(entry)
        _log.info("caches_kept", archive_bytes=archive.size_bytes)

    def caches(self, context: SubmissionContext) -> Build | None:
        """What the public run of a secret job's submission left, as its build; None: nothing is here."""
        with self._changed:
            self._drop_old()
            entry = self._entries.get(_key(context))
        if entry is None or entry.caches is None:
            return None
        return Build(archive=entry.caches, report=None if entry.build is None else entry.build.report)

    def done(self, context: SubmissionContext, *, accepted: bool) -> None:
        """The job has its result; the build is dropped when no other job needs it: none follows one that failed."""
        with self._changed:
            entry = self._entries.get(_key(context))
            if entry is not None:
                entry.awaited.discard(run_of(context.job))
                if not (accepted and entry.awaited):
                    del self._entries[_key(context)]

    # -- the table -----------------------------------------------------------------------------------------------

    def _entry(self, context: SubmissionContext) -> _Entry:
        with self._changed:
            self._drop_old()
            entry = _Entry(awaited=runs_of_build(context.job), until_s=time.monotonic() + KEPT_S)
            return self._entries.setdefault(_key(context), entry)

    def _drop_old(self) -> None:
        now_s = time.monotonic()
        for key in [key for key, entry in self._entries.items() if entry.until_s < now_s]:
            del self._entries[key]

    def _evict(self, newest: _Entry) -> None:
        with self._changed:
            kept_bytes = sum(_size(entry) for entry in self._entries.values())
            for key, entry in list(self._entries.items()):
                too_much = kept_bytes > KEPT_BYTES or len(self._entries) > KEPT
                if too_much and entry is not newest and (entry.build is not None or entry.caches is not None):
                    kept_bytes -= _size(entry)
                    del self._entries[key]

    # -- a build -------------------------------------------------------------------------------------------------

    @contextmanager
    def _build_worker(self, what: _What, cancel: threading.Event) -> Iterator[None]:
        """Wait for an idle build worker and use it."""
        with self._changed:
            while self._running >= max(1, self.workers):
                self._changed.wait(CANCEL_POLL_S)
                _raise_if_cancelled(what, cancel)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _make(self, what: _What, plan: BuildPlan, place: str, cancel: threading.Event) -> tuple[Build, int]:
        """A build, and how many nanoseconds it took."""
        began_ns = time.monotonic_ns()
        build = self._build(what, plan, place, cancel)
        return build, time.monotonic_ns() - began_ns

    def _build(self, what: _What, plan: BuildPlan, place: str, cancel: threading.Event) -> Build:
        try:
            archive = BuildArchive(self._directory)
            report = self._run(plan, place, archive, what, cancel)
        except (SandboxError, OSError) as error:
            if isinstance(error, SandboxError):
                keep_out(place, error.leftover, error, self._quarantine)
            if isinstance(error, EngineUnavailable):
                raise EngineUnavailableError(str(error)) from error
            # A run with the same problem reports it, and can be retried.
            _log.warning("build_failed", error=str(error), **what)
            return Build(archive=None, report=None)
        complete = report.outcome.ending is Ending.COMPLETED and report.ok is True
        usable = complete and archive.size_bytes > 0
        if plan.request.keep:
            metrics.built(report.outcome.wall_ns / 1e9, usable=usable)
        _log.info(
            "build_finished",
            **what,
            seconds=round(report.outcome.wall_ns / 1e9, 2),
            cpus=plan.spec.limits.cpus,
            ending=report.outcome.ending,
            exit_codes={step.name: step.exit_code for step in report.steps},
            bundle_bytes=archive.size_bytes if usable else 0,
            refused=archive.refused,
        )
        steps = tuple(
            replace(step, stdout=step.stdout[:KEPT_OUTPUT], stderr=step.stderr[:KEPT_OUTPUT]) for step in report.steps
        )
        return Build(archive=archive if usable else None, report=replace(report, steps=steps))

    def _run(
        self, plan: BuildPlan, place: str, archive: BuildArchive, what: _What, cancel: threading.Event
    ) -> ContainerReport:
        container = self._engine.start(plan.spec)
        try:
            report = container.run(plan.request, on_progress=None, cancel=cancel, receive=archive)
        finally:
            remove(container, place, self._quarantine)
        if report.outcome.ending is Ending.CANCELLED:
            raise CancelledByRequest(f"job {what['job']} was cancelled while it was built")
        return report


@contextmanager
def _hold(lock: threading.Lock, what: _What, cancel: threading.Event) -> Iterator[None]:
    while not lock.acquire(timeout=CANCEL_POLL_S):
        _raise_if_cancelled(what, cancel)
    try:
        yield
    finally:
        lock.release()


def _raise_if_cancelled(what: _What, cancel: threading.Event) -> None:
    if cancel.is_set():
        raise CancelledByRequest(f"job {what['job']} was cancelled before it was built")


def _size(entry: _Entry) -> int:
    archives = (entry.caches, None if entry.build is None else entry.build.archive)
    return sum(archive.size_bytes for archive in archives if archive is not None)


def _key(context: SubmissionContext) -> tuple[int, str, str, str]:
    """The submission, and what else determines its build. Equal files of two users are two submissions."""
    job = context.job
    # A leaderboard may be updated between two runs.
    task = json.dumps([job.task, job.extra], sort_keys=True).encode("utf-8", "surrogatepass")
    return job.submission, hashlib.sha256(job.code + b"\0" + task).hexdigest(), job.gpu_type, context.environment.image
