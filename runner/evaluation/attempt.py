"""One job on one slot: its build, its container, its result.

Owns the order of these steps. A build uses no device; it uses the slot's cores only where the host has no spare ones. A
run uses its slot's devices and cores alone: a slot evaluates one job at a time, as the caller ensures. A build is only
ever an advantage: whatever goes wrong with it, the run compiles for itself. So is what compilers left in a public run,
which the secret run gets in the place of a build: one that fails with it runs again without.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Final

from runner.base import metrics
from runner.base.device_facts import Reading
from runner.base.errors import CancelledByRequest, EngineUnavailableError, EvaluationError
from runner.base.gpu_types import GpuType
from runner.base.logs import get_logger
from runner.base.model import JobResult, Progress, Slot, Verdict
from runner.devices.gate import HealthGate, Inspection
from runner.devices.health import clock_deviations
from runner.devices.quarantine import Quarantine
from runner.devices.sampler import Sampler
from runner.evaluation import secret
from runner.evaluation.build_cache import Build, BuildCache
from runner.evaluation.context import Place, SubmissionContext
from runner.evaluation.kinds.kind import Builds, Kind, Run, Spent
from runner.evaluation.leftovers import keep_out
from runner.evaluation.open_gates import OpenGates
from runner.evaluation.plan import Plan, make_probe
from runner.evaluation.warm_pool import WarmPool
from sandbox import protocol
from sandbox.errors import EngineUnavailable, SandboxError
from sandbox.host.build_archive import BuildArchive, JoinedArchives
from sandbox.host.container import Container, ContainerReport
from sandbox.host.engine import DockerEngine
from sandbox.protocol import PairRequest, Request
from sandbox.spec import Ending

#: How a secret run ends if something in its public run's caches is broken. An import that fails is a runtime error.
_OF_BROKEN_CACHES: Final = frozenset({Verdict.COMPILE_ERROR, Verdict.RUNTIME_ERROR})

_log = get_logger(__name__)

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class HostResources:
    """The parts that all attempts of a host share. Threadsafe."""

    engine: DockerEngine
    warm_pool: WarmPool
    builds: BuildCache
    quarantine: Quarantine
    gate: HealthGate
    #: What workers have found out of the slots' devices.
    gates: OpenGates = field(default_factory=OpenGates)

    @contextmanager
    def using(self, place: Place) -> Iterator[None]:
        """Use a slot's devices and cores; afterwards the pool is refilled.

        Raises:
            EvaluationError: the slot was quarantined after it got its job: something of an earlier run still computes.
        """
        name = place.slot.name
        stuck = self.quarantine.reasons().get(name)
        if stuck is not None:
            raise EvaluationError(f"slot {name} cannot be used: {stuck}")
        try:
            yield
        finally:
            self.refill_pool(place)

    def refill_pool(self, place: Place) -> None:
        """Let containers wait for the slot's next jobs; those jobs decide whether they fit."""
        if place.slot.name not in self.quarantine.reasons():
            self.warm_pool.release(place.slot.name, make_probe(place).spec)


class Attempt:
    """Belongs to one thread. `run` may be called once."""

    def __init__(
        self, kind: Kind, resources: HostResources, *, cancel: threading.Event, on_progress: OnProgress | None
    ) -> None:
        self._kind = kind
        self._context = kind.context
        self._resources = resources
        self._cancel = cancel
        self._on_progress = on_progress
        self._builds: Builds = {}
        self._spent = Spent()
        #: Whether the build is what compilers left in the submission's public run.
        self._has_caches = False
        self._kept: BuildArchive | None = None
        #: Whether the result is final, and accepted.
        self._accepted = False
        #: Removes the used containers, or puts them away.
        self._used = ExitStack()

    @contextmanager
    def run(self) -> Iterator[JobResult]:
        """The result, for the block.

        The container is removed when the block has been left, which takes a while, or kept for what follows.

        Raises:
            CancelledByRequest: it was cancelled and its container is gone.
            EngineUnavailableError: the engine went away or refuses containers.
            EvaluationError: container or harness broke in a way that nothing evaluated can have caused.
        """
        kind, builds = self._kind, self._resources.builds
        if isinstance(self._context, SubmissionContext) and secret.precedes(self._context.job):
            builds.drop_caches(self._context)
        beside = builds.workers > 0
        if beside:
            self._build(beside=True)
        result = kind.refused(self._builds, self._account())
        if result is None:
            with self._resources.using(self._context), self._used:
                if not beside:
                    self._build(beside=False)
                    result = kind.refused(self._builds, self._account())
                if result is None:
                    result = self._decide()
                    if self._has_caches and result.verdict in _OF_BROKEN_CACHES:
                        _log.warning("caches_not_usable", job=self._context.job.id, error=result.error)
                        self._used.close()
                        self._builds = {}
                        result = self._decide()
                    self._accepted = result.verdict is Verdict.ACCEPTED
                    if self._kept is not None and self._accepted and isinstance(self._context, SubmissionContext):
                        self._resources.builds.keep_caches(self._context, self._kept)
                yield result
                return
        yield result

    def _decide(self) -> JobResult:
        """Run the containers of the job; the result."""
        for plan, archive in self._kind.plans(self._builds):
            self._measure(plan, archive)
        return self._kind.decide(self._builds, self._account())

    def _account(self) -> Spent:
        return replace(self._spent, elapsed_ns=time.monotonic_ns() - self._context.started_ns)

    # -- build ---------------------------------------------------------------------------------------------------

    def _build(self, *, beside: bool) -> None:
        """Build what is to be built before the run, as many at a time as there are build workers.

        Raises:
            CancelledByRequest: it was cancelled, and the containers are gone.
            EngineUnavailableError: no engine answers.
        """
        cache, began_ns = self._resources.builds, time.monotonic_ns()
        if isinstance(self._context, SubmissionContext) and secret.follows(self._context.job):
            left = cache.caches(self._context)
            if left is not None:
                self._builds, self._has_caches = {0: (left, 0)}, True
                return
        cpus = cache.cpus(self._context.slot, beside=beside)
        plans = self._kind.build_plans(cpus, beside=beside) if cache.is_on else {}
        if not plans:
            return

        def make(number: int) -> tuple[Build, int]:
            # The submission's other job (public or secret) has the same build.
            if isinstance(self._context, SubmissionContext):
                return cache.get(self._context, beside=beside, plan=plans[number], cancel=self._cancel)
            what = {"job": self._context.job.id, "candidate": number}
            return cache.build(plans[number], what=what, cancel=self._cancel)

        threads = ThreadPoolExecutor(max(1, cache.workers), thread_name_prefix="build")
        try:
            # Their log lines name the job, too.
            builds = [(number, threads.submit(copy_context().run, make, number)) for number in plans]
            total = len(builds) if len(builds) > 1 else 0
            for done, (number, build) in enumerate(builds):
                self._post(Progress(phase="build", done=done, total=total))
                self._builds = {**self._builds, number: build.result()}
        finally:
            # After a failure no further build begins, and no thread outlives the evaluation.
            threads.shutdown(cancel_futures=True)
        took_ns = time.monotonic_ns() - began_ns
        built_ns = min(took_ns, sum(build_ns for _, build_ns in self._builds.values()))
        waited_ns = self._spent.waited_ns + took_ns - built_ns
        self._spent = replace(self._spent, built_ns=built_ns, waited_ns=waited_ns)

    def _post(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)

    # -- run -----------------------------------------------------------------------------------------------------

    def _measure(self, plan: Plan, archive: BuildArchive | JoinedArchives | None) -> None:
        """Run a container between two inspections of the slot's devices."""
        slot, gate = self._context.slot, self._resources.gate
        before = self._inspect_before()
        run, sampler = self._execute(plan, archive)
        # A group's request says which archives there are, and its judge is told of one that it cannot unpack.
        if isinstance(archive, BuildArchive) and _broke_before_submission(run.report):
            error = run.report.message or run.report.outcome.detail
            _log.warning("build_archive_not_usable", job=self._context.job.id, error=error)
            self._used.close()
            run, sampler = self._execute(plan, None)
            run = replace(run, archive_broken=True)
        if slot.devices or plan.alone:
            # First remove the container, or leave no process of the request in it: then everything on the device is
            # left over.
            self._used.close()
            run = replace(run, gone_ns=time.monotonic_ns())
        elif plan.kept_for is None or not _may_be_accepted(run.report):
            # The next container imports while this one is removed and a job is claimed.
            self._resources.warm_pool.replace_last(slot.name)
        if slot.devices:
            after = self._inspect_after(before, run.report)
            run = replace(run, devices=tuple(gate.metadata(slot, before, after, sampler)))
        if run.report.outcome.ending is Ending.CANCELLED:
            seconds = run.report.outcome.wall_ns / 1e9
            raise CancelledByRequest(f"job {self._context.job.id} was cancelled after {seconds:.1f} s")
        # A container that was ended while it packed has sent a part.
        self._kept = run.kept if run.report.ok else None
        self._kind.heard(run)

    def _inspect_before(self) -> Inspection:
        """The slot's devices before a run.

        Raises:
            EvaluationError: they are not fit for it.
        """
        slot = self._context.slot
        before = self._resources.gate.inspect(slot)
        metrics.inspected(slot, before.readings, before.xids)
        if not before.health.fit:
            raise EvaluationError(f"slot {slot.name} is not fit: {'; '.join(before.health.reasons)}")
        return before

    def _inspect_after(self, before: Inspection, report: ContainerReport) -> Inspection:
        """The slot's devices after a run whose container is gone, or empty; one that is not fit is not shared further.

        Raises:
            EvaluationError: something happened to them during the run.
        """
        slot, gate = self._context.slot, self._resources.gate
        after = gate.inspect(slot)
        metrics.inspected(slot, after.readings, after.xids)
        if not after.health.fit:
            self._resources.warm_pool.drop(slot.name)
        spoiled = gate.spoiled(slot, before, after)
        if spoiled is not None and report.outcome.ending is not Ending.CANCELLED:
            raise EvaluationError(f"the result does not count: {spoiled}")
        return after

    def _execute(self, plan: Plan, archive: BuildArchive | JoinedArchives | None) -> tuple[Run, Sampler | None]:
        """Run a container while the slot's devices are sampled; the judge gets the readings as they come."""
        gpu, slot = self._context.gpu, self._context.slot
        # The host's cap is on all that a job takes: its builds, and other containers that came before.
        spent_s = (time.monotonic_ns() - self._context.started_ns - self._spent.waited_ns) / 1e9
        left_s = max(1.0, self._context.max_run_s - spent_s)
        limits = replace(plan.spec.limits, wall_s=min(plan.spec.limits.wall_s, left_s))
        plan = replace(plan, spec=replace(plan.spec, limits=limits))
        # Only the latest readings matter.
        messages: deque[bytes] | None = deque(maxlen=64) if isinstance(plan.request, PairRequest) else None
        phases: set[str] = set()

        # Called by the sampler's thread: the judge needs a reading while the call beside it is still known.
        def tell(readings: Sequence[Reading]) -> None:
            if messages is not None:
                for reading in judge_readings(readings, gpu, at_ns=time.monotonic_ns()):
                    messages.append(protocol.encode(reading.to_message()))

        def hear(progress: Progress) -> None:
            phases.add(progress.phase)
            self._post(progress)

        kept = self._resources.builds.new_archive() if plan.request.keep else None
        asked_ns = time.monotonic_ns()
        with self._resources.gate.sampling(slot, gpu.sample_every_s, on_round=tell) as sampler:
            executed = execute(
                plan,
                slot,
                self._resources,
                cancel=self._cancel,
                on_progress=hear,
                archive=archive,
                kept=kept,
                messages=messages,
                may_keep=lambda: plan.alone or self._accepted,
            )
            report, ready_ns = self._used.enter_context(executed)
        ended_ns = time.monotonic_ns()
        run = Run(
            plan=plan,
            report=report,
            asked_ns=asked_ns,
            ready_ns=ready_ns,
            ended_ns=ended_ns,
            gone_ns=ended_ns,
            phases=frozenset(phases),
            kept=kept,
        )
        return run, sampler


@contextmanager
def execute(
    plan: Plan,
    slot: Slot,
    resources: HostResources,
    *,
    cancel: threading.Event,
    on_progress: OnProgress | None = None,
    archive: BuildArchive | JoinedArchives | None = None,
    kept: BuildArchive | None = None,
    messages: deque[bytes] | None = None,
    may_keep: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[ContainerReport, int]]:
    """Run a request in a fresh container; in a waiting one of the slot, if it fits; in one that the plan follows.

    `kept` gets what the request asks to keep; None: nothing is asked for.
    The block gets the report, and when the container was ready for the request, on the monotonic clock in nanoseconds.
    A container that has finished its report is removed when the block has been left, because the removal takes longer
    than everything else after a report. It is kept instead for whom the plan says, if `may_keep` says so then. Every
    other container is gone when the block begins.
    """
    request = resources.gates.with_gates(_request(plan, archive, kept), slot)
    with ExitStack() as used:

        def put_away(container: Container) -> None:
            owner = plan.kept_for if may_keep() else None
            resources.warm_pool.put_away(slot.name, plan.spec, container, owner=owner)

        def converse(container: Container) -> tuple[ContainerReport, int]:
            begun_ns = time.monotonic_ns()
            with ExitStack() as removal:
                removal.callback(put_away, container)
                report = container.run(
                    request,
                    on_progress=_forward(on_progress),
                    cancel=cancel,
                    wall_s=plan.spec.limits.wall_s,
                    archive=archive,
                    receive=kept,
                    messages=messages,
                )
                if report.outcome.ending is Ending.COMPLETED:
                    used.push(removal.pop_all())
            return report, begun_ns

        try:
            warm = resources.warm_pool.take(slot.name, plan.spec, cancel=cancel, owner=plan.follows)
            metrics.container_taken(warm=warm is not None)
            exchange = None if warm is None else converse(warm)
            if warm is not None and exchange is not None and _had_ended_before(warm, exchange[0], slot.name):
                used.close()
                exchange = None
            if exchange is None:
                if cancel.is_set():
                    raise CancelledByRequest("cancelled before its container started")
                exchange = converse(resources.engine.start(plan.spec))
        except SandboxError as error:
            keep_out(slot.name, error.leftover, error, resources.quarantine)
            if isinstance(error, EngineUnavailable):
                raise EngineUnavailableError(str(error)) from error
            raise EvaluationError(str(error)) from error
        resources.gates.note(slot, [step.judged.details for step in exchange[0].steps if step.judged is not None])
        yield exchange


def _request(plan: Plan, archive: BuildArchive | JoinedArchives | None, kept: BuildArchive | None) -> Request:
    """The plan's request, with an archive, and with what to keep if there is a place for it."""
    request = plan.request if kept is not None else replace(plan.request, keep=())
    if archive is not None:
        request = replace(plan.built_request or request, archive_bytes=archive.size_bytes)
    return replace(request, stay_open=True) if isinstance(request, PairRequest) and plan.kept_for else request


def _forward(on_progress: OnProgress | None) -> Callable[[str, int, int], None] | None:
    """Turns a container's progress messages into the daemon's."""
    if on_progress is None:
        return None
    return lambda phase, done, total: on_progress(Progress(phase=phase, done=done, total=total))


def judge_readings(readings: Sequence[Reading], gpu: GpuType, *, at_ns: int) -> Iterator[protocol.Reading]:
    """The readings of a slot's devices as the judge gets them; `at_ns` is on the host's monotonic clock.

    The clocks of the GPU type decide which throttle reasons set times aside. A call is as slow as its slowest device,
    and the judge uses the readings nearest to a call, of whichever device. So every reading carries the reasons of all
    devices.
    """
    counts = gpu.clocks.set_aside
    reasons = (
        name
        for reading in readings
        for name in (*(name for name in reading.throttle if name in counts), *clock_deviations(reading, gpu))
    )
    held = tuple(dict.fromkeys(reasons))
    for reading in readings:
        yield protocol.Reading(
            at_ns=at_ns,
            held=held,
            noted=tuple(name for name in reading.throttle if name not in counts),
            sm_clock_mhz=reading.sm_clock_mhz,
            memory_clock_mhz=reading.memory_clock_mhz,
            temperature_c=reading.temperature_c,
            power_w=reading.power_w,
        )


def _had_ended_before(container: Container, report: ContainerReport, slot: str) -> bool:
    """Whether a waiting container's end may have come before the request: no verdict, and another one is tried.

    It was gone, which is the engine's fault; or it had served another request and met a limit, or broke. No limit makes
    an answer wrong: otherwise a submission that fails could have a second try.
    """
    ending, detail = report.outcome.ending, report.outcome.detail
    if container.requests > 1:
        wrong = any(step.judged is not None and step.judged.verdict == Verdict.WRONG_ANSWER for step in report.steps)
        repeated = not report.is_clean and not wrong and ending not in {Ending.CANCELLED, Ending.DEADLINE}
        if repeated:
            _log.info("request_repeated", slot=slot, requests=container.requests, ending=ending, detail=detail)
        return repeated
    dead = ending is Ending.DIED and not report.steps and not report.outcome.oom_kills
    if dead:
        _log.warning("warm_container_dead", slot=slot, detail=detail)
    return dead


def _broke_before_submission(report: ContainerReport) -> bool:
    """Whether a container broke before the submission reported anything: perhaps its build archive is bad."""
    broke = report.ok is False or report.outcome.ending in {Ending.DIED, Ending.BAD_REPORT}
    return broke and not report.steps and report.author_exit is None


def _may_be_accepted(report: ContainerReport) -> bool:
    """Whether the judge accepted everything, and the container is as it was; the daemon's own checks follow."""
    accepted = all(step.judged is not None and step.judged.verdict == Verdict.ACCEPTED for step in report.steps)
    return report.is_clean and accepted
