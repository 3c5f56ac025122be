"""One job on one slot: its build, its container, its result.

Owns the order of these steps. A build uses no device; it uses the slot's cores only where the host has no spare ones. A
run uses its slot's devices and cores alone: a slot evaluates one job at a time, as the caller ensures. A build is only
ever an advantage: whatever goes wrong with it, the run compiles for itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from runner import metrics
from runner.devices.facts import Reading
from runner.devices.gate import HealthGate, Inspection
from runner.devices.health import Condition, Health, clock_deviations
from runner.devices.quarantine import Quarantine
from runner.devices.sampler import Sampler
from runner.errors import CancelledByRequest, EngineUnavailableError, EvaluationError
from runner.evaluation.build_cache import Build, BuildCache
from runner.evaluation.build_plan import make_build_plan, should_build
from runner.evaluation.context import JobContext, Place
from runner.evaluation.open_gates import OpenGates
from runner.evaluation.plan import Plan, make_probe
from runner.evaluation.result_rows import Evidence
from runner.evaluation.verdict import compile_failure, decide
from runner.evaluation.warm_pool import WarmPool, remove
from runner.gpu_types import GpuType
from runner.logs import get_logger
from runner.model import Artifact, JobResult, Json, Mode, Progress, Slot
from sandbox import protocol
from sandbox.errors import EngineUnavailable, SandboxError
from sandbox.host.build_archive import BuildArchive, JoinedArchives
from sandbox.host.container import Container, ContainerReport, MessageQueue
from sandbox.host.engine import DockerEngine
from sandbox.protocol import PairRequest
from sandbox.spec import Ending

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
        with self.gate.using(place.slot):
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
        self,
        context: JobContext,
        plan: Plan,
        resources: HostResources,
        *,
        cancel: threading.Event,
        on_progress: OnProgress | None,
    ) -> None:
        self._context = context
        self._plan = plan
        self._resources = resources
        self._cancel = cancel
        self._on_progress = on_progress
        #: Time spent on its own build, and on waiting: for a build worker, another job's build, or cooler devices.
        self._built_ns = 0
        self._waited_ns = 0
        #: The inspection before the run, and what the result says of the devices.
        self._before = Inspection(readings=(), health=Health(condition=Condition.FIT))
        self._devices: list[Json] | None = None
        #: How long the devices cooled down before the run; None: it was not asked for.
        self._cooled_s: float | None = None
        #: Removes the used containers.
        self._used = ExitStack()

    @contextmanager
    def run(self) -> Iterator[JobResult]:
        """The result, for the block.

        The container is removed when the block has been left, which takes a while.

        Raises:
            CancelledByRequest: it was cancelled and its container is gone.
            EngineUnavailableError: the engine went away or refuses containers.
            EvaluationError: container or harness broke in a way the submission cannot have caused.
        """
        builds, context = self._resources.builds, self._context
        wanted = builds.wanted and should_build(context.job.code, context.task, context.gpu)
        beside = wanted and builds.workers > 0
        build = self._build(beside=True) if beside else None
        failed = self._compile_failure(build)
        if failed is None:
            with self._slot():
                if wanted and not beside:
                    build = self._build(beside=False)
                    failed = self._compile_failure(build)
                if failed is None:
                    yield self._measure(build)
                    return
        yield failed

    # -- build ---------------------------------------------------------------------------------------------------

    def _build(self, *, beside: bool) -> Build:
        """The build of the submission, made now or by its other job (public or secret)."""
        context, builds, asked_ns = self._context, self._resources.builds, time.monotonic_ns()
        self._post_phase("build")
        build, self._built_ns = builds.get(
            context.job,
            context.slot,
            beside=beside,
            image=context.environment.image,
            plan=make_build_plan(context, cpus=builds.cpus(context.slot, beside=beside)),
            cancel=self._cancel,
        )
        self._waited_ns += time.monotonic_ns() - asked_ns - self._built_ns
        return build

    def _compile_failure(self, build: Build | None) -> JobResult | None:
        """The result if nothing was compiled that could run."""
        if build is None or build.report is None or build.archive is not None:
            return None
        begun_ns = time.monotonic_ns() - build.report.outcome.wall_ns
        evidence = self._evidence(build.report, build, begun_ns)
        return compile_failure(self._context, self._plan, evidence)

    # -- run -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Use the slot: check its devices, and clear it afterwards."""
        with self._resources.using(self._context):
            try:
                self._cool_down()
                self._before = inspect_before(self._context, self._resources, ranked=self._context.job.mode.ranked)
                yield
            finally:
                self._used.close()

    def _cool_down(self) -> None:
        """Let the devices of a timed run cool down as far as its GPU type asks."""
        context = self._context
        if context.job.mode in {Mode.TEST, Mode.PROFILE}:
            return
        self._cooled_s = cool_down(context, self._resources, cancel=self._cancel)
        self._waited_ns += round((self._cooled_s or 0.0) * 1e9)

    def _measure(self, build: Build | None) -> JobResult:
        context, gate, slot = self._context, self._resources.gate, self._context.slot
        archive = None if build is None else build.archive
        report, begun_ns, sampler = self._execute(archive)
        if archive is not None and _broke_before_submission(report):
            _log.warning("build_archive_not_usable", job=context.job.id, error=report.message or report.outcome.detail)
            build = None
            self._used.close()
            report, begun_ns, sampler = self._execute(None)
        if slot.devices:
            # Remove the container first: only then is everything on the device left over.
            self._used.close()
            after = inspect_after(context, self._resources, self._before, report)
            self._devices = gate.metadata(slot, self._before, after, sampler)
        if report.outcome.ending is Ending.CANCELLED:
            seconds = report.outcome.wall_ns / 1e9
            raise CancelledByRequest(f"job {context.job.id} was cancelled after {seconds:.1f} s")
        return decide(context, self._plan, self._evidence(report, build, begun_ns))

    def _execute(self, archive: BuildArchive | None) -> tuple[ContainerReport, int, Sampler | None]:
        executed = execute_sampled(
            self._plan,
            self._context,
            self._resources,
            cancel=self._cancel,
            on_progress=self._on_progress,
            archive=archive,
        )
        return self._used.enter_context(executed)

    def _evidence(self, report: ContainerReport, build: Build | None, begun_ns: int) -> Evidence:
        compiled = () if build is None or build.report is None else build.report.steps
        return Evidence(
            steps=() if build is not None and report is build.report else report.steps,
            compiled=compiled,
            artifacts=tuple(
                Artifact(name=name, media_type=media_type, data=data) for name, media_type, data in report.artifacts
            ),
            ok=report.ok,
            message=report.message,
            outcome=report.outcome,
            request_offset_ns=max(0, begun_ns - self._context.started_ns),
            built_ns=self._built_ns,
            waited_ns=self._waited_ns,
            system=self._context.system,
            runner={**self._context.runner, "sandbox": dict(report.attested), **self._observed()},
        )

    def _observed(self) -> Json:
        return {
            **({} if self._devices is None else {"devices": self._devices}),
            **({} if self._cooled_s is None else {"cooled_s": round(self._cooled_s, 3)}),
        }

    def _post_phase(self, phase: str) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(phase=phase, done=0, total=0))


def cool_down(place: Place, resources: HostResources, *, cancel: threading.Event) -> float | None:
    """Let a slot's devices cool down as far as its GPU type asks; the seconds waited, or None: it asks for nothing."""
    gpu = place.gpu
    if gpu.cool_below_c is None or not place.slot.devices:
        return None
    return resources.gate.cool(place.slot, below_c=gpu.cool_below_c, limit_s=gpu.cool_limit_s, cancel=cancel)


def inspect_before(place: Place, resources: HostResources, *, ranked: bool) -> Inspection:
    """The slot's devices before a run.

    Raises:
        EvaluationError: they are not fit for it.
    """
    before = resources.gate.inspect(place.slot)
    metrics.inspected(place.slot, before.readings)
    health = before.health
    if health.bars(ranked=ranked):
        raise EvaluationError(f"slot {place.slot.name} is {health.condition}: {'; '.join(health.reasons)}")
    return before


def inspect_after(place: Place, resources: HostResources, before: Inspection, report: ContainerReport) -> Inspection:
    """The slot's devices after a run whose container is gone.

    Raises:
        EvaluationError: something happened to them during the run.
    """
    after = resources.gate.inspect(place.slot)
    metrics.inspected(place.slot, after.readings)
    spoiled = resources.gate.spoiled(place.slot, before, after)
    if spoiled is not None and report.outcome.ending is not Ending.CANCELLED:
        raise EvaluationError(f"the result does not count: {spoiled}")
    return after


@contextmanager
def execute_sampled(
    plan: Plan,
    place: Place,
    resources: HostResources,
    *,
    cancel: threading.Event,
    on_progress: OnProgress | None = None,
    archive: BuildArchive | JoinedArchives | None = None,
) -> Iterator[tuple[ContainerReport, int, Sampler | None]]:
    """Run a request as `execute` does, while the slot's devices are sampled; the judge gets the readings as they come.

    The block also gets the sampler; None where nothing is sampled.

    Raises:
        CancelledByRequest, EngineUnavailableError, EvaluationError: as `Attempt.run`.
    """
    messages = MessageQueue() if isinstance(plan.request, PairRequest) else None

    # Called by the sampler's thread: the judge needs a reading while the call beside it is still known.
    def tell(readings: Sequence[Reading]) -> None:
        if messages is not None:
            for reading in judge_readings(readings, place.gpu, at_ns=time.monotonic_ns()):
                messages.put(reading.to_message())

    with ExitStack() as used:
        with resources.gate.sampling(place.slot, place.gpu.sample_every_s, on_round=tell) as sampler:
            executed = execute(
                plan,
                place.slot,
                resources,
                cancel=cancel,
                on_progress=on_progress,
                archive=archive,
                messages=messages,
            )
            report, begun_ns = used.enter_context(executed)
        yield report, begun_ns, sampler


@contextmanager
def execute(
    plan: Plan,
    slot: Slot,
    resources: HostResources,
    *,
    cancel: threading.Event,
    on_progress: OnProgress | None = None,
    archive: BuildArchive | JoinedArchives | None = None,
    messages: MessageQueue | None = None,
) -> Iterator[tuple[ContainerReport, int]]:
    """Run a request in a fresh container; in a waiting one of the slot, if it fits.

    The block gets the report, and when the container was ready for the request, on the monotonic clock in nanoseconds.
    A container that has finished its report is removed when the block has been left, because the removal takes longer
    than everything else after a report. Every other container is gone when the block begins.

    Raises:
        CancelledByRequest, EngineUnavailableError, EvaluationError: as `Attempt.run`.
    """
    request = plan.request
    if archive is not None:
        request = replace(plan.built_request or request, archive_bytes=archive.size_bytes)
    request = resources.gates.told(request, slot)
    with ExitStack() as used:

        def converse(container: Container) -> tuple[ContainerReport, int]:
            begun_ns = time.monotonic_ns()
            with ExitStack() as removal:
                removal.callback(remove, container, slot.name, resources.quarantine)
                report = container.run(
                    request,
                    on_progress=_forward(on_progress),
                    cancel=cancel,
                    wall_s=plan.spec.limits.wall_s,
                    archive=archive,
                    messages=messages,
                )
                if report.outcome.ending is Ending.COMPLETED:
                    used.push(removal.pop_all())
            return report, begun_ns

        try:
            warm = resources.warm_pool.take(slot.name, plan.spec, cancel=cancel)
            metrics.container_taken(warm=warm is not None)
            found = None if warm is None else converse(warm)
            if found is not None and _died_while_warm(found[0]):
                _log.warning("warm_container_dead", slot=slot.name, detail=found[0].outcome.detail)
                found = None
            if found is None:
                if cancel.is_set():
                    raise CancelledByRequest("cancelled before its container started")
                found = converse(resources.engine.start(plan.spec))
        except SandboxError as error:
            if error.leftover is not None:
                resources.quarantine.add(slot.name, error.leftover, error)
            if isinstance(error, EngineUnavailable):
                raise EngineUnavailableError(str(error)) from error
            raise EvaluationError(str(error)) from error
        resources.gates.note(slot, [step.judged.details for step in found[0].steps if step.judged is not None])
        yield found


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


def _died_while_warm(report: ContainerReport) -> bool:
    """Whether a waiting container was gone before it got the request: the engine's fault, and no verdict."""
    silent = not report.steps and not report.outcome.oom_kills
    return report.outcome.ending is Ending.DIED and silent


def _broke_before_submission(report: ContainerReport) -> bool:
    """Whether a container broke before the submission reported anything: perhaps its build archive is bad."""
    broke = report.ok is False or report.outcome.ending in {Ending.DIED, Ending.BAD_REPORT}
    return broke and not report.steps
