"""Evaluates one job on one slot: task, plan, build, container, verdict.

Owns the host's environments and the parts that all attempts share. It has no database connection and no queue state: it
gets a Job and yields a JobResult, or raises an error of ours. Docker is reached only through `sandbox.host.engine`.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from py_compile import PyCompileError
from typing import Any

import tasks
from runner import __version__
from runner.base.config import Config
from runner.base.errors import (
    CancelledByRequest,
    EngineUnavailableError,
    EvaluationError,
    InfrastructureError,
    TaskError,
)
from runner.base.gpu_types import GpuType, Registry
from runner.base.logs import get_logger
from runner.base.model import GroupJob, Job, JobResult, Json, Slot, SubmissionJob, ValidationJob, Verdict
from runner.devices import spare_cpus
from runner.devices.gate import HealthGate
from runner.devices.quarantine import Quarantine
from runner.devices.vendors import SUPPORTED
from runner.evaluation.attempt import Attempt, HostResources, OnProgress, execute
from runner.evaluation.build_cache import BUILD_WORKER, BuildCache
from runner.evaluation.container_spec import HOST_IMAGE
from runner.evaluation.context import Environment, GroupContext, Place, SubmissionContext, ValidationContext
from runner.evaluation.kinds import guests
from runner.evaluation.kinds.kernel import Kernel
from runner.evaluation.kinds.kind import Kind, Spent
from runner.evaluation.kinds.program import Program
from runner.evaluation.kinds.submission import Submission
from runner.evaluation.plan import make_probe
from runner.evaluation.verdict import invalid
from runner.evaluation.warm_pool import WarmPool
from runner.task_format import from_stored, unknown_keys
from runner.task_format.model import Harness
from sandbox.errors import EngineUnavailable, SandboxError
from sandbox.host.engine import DockerEngine, EngineFacts
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import binds, stage
from sandbox.spec import DeviceDriver

_log = get_logger(__name__)


class Evaluator:
    """Threadsafe: one instance serves all slots of a host."""

    def __init__(
        self,
        engine: DockerEngine,
        registry: Registry,
        config: Config,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._engine = engine
        self._quarantine = quarantine or Quarantine()
        self._registry = registry
        self._config = config
        # Once: one that goes later is a failure of the host.
        self._eval_python = config.require_eval_python()
        self._lock = threading.Lock()
        self._stage: Path | None = None
        self._facts: EngineFacts | None = None
        self._environments: dict[str, Environment] = {}
        self._systems: dict[str, Json] = {}
        self._warm_pool = WarmPool(engine, self._quarantine, size=config.warm_containers)
        self._build_cache = BuildCache(
            engine,
            self._quarantine,
            directory=config.state_dir,
            workers=None if config.build_workers == "auto" else config.build_workers,
        )
        self._gate = HealthGate(self._quarantine, type_of=lambda slot: registry.get(slot.gpu_type))
        self._resources = HostResources(
            engine=engine,
            warm_pool=self._warm_pool,
            builds=self._build_cache,
            quarantine=self._quarantine,
            gate=self._gate,
        )
        self._without_pool = replace(self._resources, warm_pool=WarmPool(engine, self._quarantine, size=0))

    @property
    def warm(self) -> Mapping[str, int]:
        """How many containers wait for each slot that has had a job or was prepared."""
        return self._warm_pool.counts()

    @property
    def builds(self) -> tuple[int, int]:
        """How many builds may run beside the slots, and how many do."""
        return self._build_cache.workers, self._build_cache.running

    def close(self) -> None:
        """Remove the waiting containers; call it when no run will follow."""
        self._warm_pool.close()
        self._build_cache.close()
        self._quarantine.close()
        self._gate.close()

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Build the root file systems of these slots' GPU types and test each with a probe container.

        Raises:
            EngineUnavailableError: no engine answers.
            EvaluationError: the probe failed; with the container's message.
        """
        slots = tuple(slots)
        self._build_cache.arrange(slots)
        self._warm_pool.arrange(spare_cpus(slots))
        # An earlier try may have come before the engine had everything.
        self.check()
        for name in dict.fromkeys(slot.gpu_type for slot in slots):
            gpu = self._registry.get(name)
            started = time.monotonic()
            system = self._prove(gpu, [slot for slot in slots if slot.gpu_type == name])
            _log.info(
                "environment_ready",
                gpu_type=gpu.name,
                image=self._environments[gpu.name].image,
                torch=system.get("torch"),
                seconds=round(time.monotonic() - started, 2),
            )
        self._prune()
        for slot in slots:
            gpu = self._registry.get(slot.gpu_type)
            self._resources.refill_pool(self._place(slot))

    def check(self) -> None:
        """Look for what containers are made of: images, staged code, the environment. What has gone is made anew.

        An engine that is emptied, its images that are pruned, or another release of the host's software would fail
        every job until this process ends.

        Raises:
            EngineUnavailableError: no engine answers.
            EvaluationError: it cannot be made.
        """
        self._remove_old(self._engine.reap_lost)
        with self._lock:
            # The engine may have been set up otherwise, and the host's software replaced.
            self._facts = self._ask()
            unstaged = self._stage is not None and not self._stage.is_dir()
            if unstaged:
                self._stage = None
            for name, environment in list(self._environments.items()):
                gpu = self._registry.get(name)
                stays = gpu.image != HOST_IMAGE and self._is_whole(environment)
                fresh = replace(environment, **self._offered(gpu)) if stays else self._make_environment(gpu)
                self._environments[name] = fresh
                if unstaged or fresh != environment:
                    # Not at each try: meanwhile the daemon says what it waits for.
                    _log.warning("environment_gone", gpu_type=name, image=environment.image)
                    # Another image may have other libraries.
                    self._systems.pop(name, None)

    def _is_whole(self, environment: Environment) -> bool:
        try:
            return self._engine.image_id(environment.image) == environment.image and all(
                Path(bind.source).exists() for bind in environment.binds
            )
        except EngineUnavailable as error:
            raise EngineUnavailableError(str(error)) from error
        except SandboxError:
            return False

    def _prove(self, gpu: GpuType, slots: Sequence[Slot]) -> Json:
        """The facts of a GPU type, from the first of its slots whose device works.

        Raises:
            EngineUnavailableError, EvaluationError: the probe failed; on devices, on that of every slot.
        """
        *others, last = slots if slots[0].devices else slots[:1]
        for slot in others:
            try:
                return self._system(self._place(slot, gpu))
            except EvaluationError as error:
                _log.warning("probe_failed", gpu_type=gpu.name, slot=slot.name, error=str(error))
        return self._system(self._place(last, gpu))

    def _prune(self) -> None:
        """Remove root file systems that earlier processes imported for environments that have changed since.

        Also containers that the engine started for an earlier process after this one had looked for them.
        """
        self._remove_old(self._engine.reap_orphans)
        images = [environment.image for environment in self._environments.values()]
        if gone := self._remove_old(lambda: self._engine.prune_host_roots(images)):
            _log.info("old_root_file_systems_removed", count=gone)

    def _remove_old(self, remove: Callable[[], int]) -> int:
        try:
            return remove()
        except SandboxError as error:
            _log.warning("old_containers_not_removed", error=str(error))
            return 0

    def try_out(self, slot: Slot, *, cancel: threading.Event) -> None:
        """A run has failed through our fault: keep the slot out of use until a run without a submission succeeds on it.

        What breaks every run, such as an engine that starts no container, would else fail all jobs of the queue.
        """
        if slot.name in self._quarantine.reasons():
            return
        fault = self._fault(slot, cancel)
        if fault is not None:
            never = threading.Event()
            self._quarantine.quarantine_runs(slot.name, fault, mended=lambda: self._fault(slot, never) is None)

    def _fault(self, slot: Slot, cancel: threading.Event) -> str | None:
        """Why nothing runs on a slot; None: a probe in a new container has run, or was cancelled."""
        try:
            self._probe(self._place(slot), cancel)
        except InfrastructureError as error:
            return str(error)
        except CancelledByRequest:
            pass
        return None

    def run(self, job: Job, slot: Slot, *, cancel: threading.Event, on_progress: OnProgress | None = None) -> JobResult:
        """The result of `evaluate`, when its container is gone."""
        with self.evaluate(job, slot, cancel=cancel, on_progress=on_progress) as result:
            pass
        return result

    @contextmanager
    def evaluate(
        self, job: Job, slot: Slot, *, cancel: threading.Event, on_progress: OnProgress | None = None
    ) -> Iterator[JobResult]:
        """Evaluate a job on a slot, which evaluates no other job meanwhile, in a container that saw no other owner's.

        The block gets the result as soon as it is final. Its container is removed when the block has been left, unless
        a further group of the batch, or the submission's secret run, may follow in it. `on_progress` is called from
        this thread.

        Raises:
            CancelledByRequest: `cancel` was set and the container is gone.
            EngineUnavailableError: the engine went away or refuses containers.
            EvaluationError: container or harness broke in a way the submission cannot have caused.
        """
        try:
            kind = self._kind(job, slot)
        except TaskError as error:
            yield invalid(str(error))
            return
        if cancel.is_set():
            raise CancelledByRequest(f"job {job.id} was cancelled before its container started")
        with Attempt(kind, self._resources, cancel=cancel, on_progress=on_progress).run() as result:
            yield result
        if isinstance(kind.context, SubmissionContext):
            self._build_cache.done(kind.context, accepted=result.verdict is Verdict.ACCEPTED)

    @property
    def can_refuse(self) -> bool:
        """Whether `refuse` has cores of its own, so that it disturbs no slot."""
        return self._build_cache.workers > 0

    def refuse(self, job: SubmissionJob, slot: Slot, *, cancel: threading.Event) -> JobResult | None:
        """The result of a job that waits, if its file is no Python, or nvcc refuses it; None: it has to run.

        A build worker's container parses the file, and runs nothing of it. For lang cu it builds as before a run, and
        the build is kept for the runs of the submission. The slot, one of its GPU type, is not used, and may be busy.
        """
        cache = self._build_cache
        cpus = cache.cpus(slot, beside=True)
        try:
            kind = self._kind(job, replace(slot, name=BUILD_WORKER, devices=(), cpus=cpus, numa_node=None))
        except TaskError:
            # A slot may have what the task needs; and its run says what is wrong.
            return None
        if not isinstance(kind, Submission) or (plan := kind.check_plan(cpus)) is None:
            return None
        if kind.is_compiled:
            build, built_ns = cache.get(kind.context, beside=True, plan=plan, cancel=cancel)
        else:
            what = {"job": job.id, "submission": job.submission}
            build, built_ns = cache.build(plan, what=what, cancel=cancel)
        elapsed_ns = time.monotonic_ns() - kind.context.started_ns
        spent = Spent(elapsed_ns=elapsed_ns, built_ns=built_ns, waited_ns=max(0, elapsed_ns - built_ns))
        result = kind.refused_early(build, spent)
        if result is not None:
            cache.done(kind.context, accepted=False)
        return result

    def _kind(self, job: Job, slot: Slot) -> Kind:
        """A job with everything that was looked up for it.

        Raises:
            EngineUnavailableError, EvaluationError: no environment can be made, or its probe failed.
            TaskError: its task is none or cannot be evaluated as asked, or its submission is no text.
        """
        place = self._place(slot, self._registry.get(job.gpu_type))
        facts: dict[str, Any] = {
            **vars(place),
            "job": job,
            "build_timeout_s": self._config.build_timeout_s,
            "max_run_s": self._config.max_run_s,
            "started_ns": time.monotonic_ns(),
        }
        if isinstance(job, GroupJob):
            return guests.group(GroupContext(**facts))
        if not isinstance(job, SubmissionJob | ValidationJob):
            raise TypeError(f"job {job.id} is neither of a submission, nor a group, nor a validation")
        if unknown := unknown_keys(job.task):
            _log.warning("task_keys_unknown", leaderboard=job.leaderboard, keys=", ".join(unknown))
        task = from_stored(job.task, job.extra, origin=f"leaderboard {job.leaderboard!r}")
        if isinstance(job, ValidationJob):
            return guests.validation(ValidationContext(**facts, task=task))
        try:
            job.code.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise TaskError(f"{job.file_name} is not UTF-8 text: byte {error.start} is {byte:#04x}") from error
        context = SubmissionContext(**facts, task=task, system=self._system(place), runner=self._runner_info(place))
        return Kernel(context) if task.harness is Harness.BUILTIN else Program(context)

    def _place(self, slot: Slot, gpu: GpuType | None = None) -> Place:
        gpu = gpu or self._registry.get(slot.gpu_type)
        return Place(gpu=gpu, slot=slot, environment=self._environment(gpu))

    def _environment(self, gpu: GpuType) -> Environment:
        with self._lock:
            environment = self._environments.get(gpu.name)
            if environment is None:
                environment = self._environments[gpu.name] = self._make_environment(gpu)
            return environment

    def _make_environment(self, gpu: GpuType) -> Environment:
        try:
            if self._stage is None:
                package = Path(tasks.__file__).parent
                self._stage = stage(
                    self._config.state_dir / "stage",
                    {
                        "tasks/__init__.py": package / "__init__.py",
                        "tasks/harness": package / "harness",
                        **guests.inside(),
                    },
                )
            staged = binds(self._stage)
            if gpu.image == HOST_IMAGE:
                root = HostRoot(eval_python=self._eval_python)
                image, python = self._engine.ensure_host_root(root), root.python
                bound = (*root.binds(), *staged)
            else:
                image, python, bound = self._engine.image_id(gpu.image), gpu.image_python, staged
        except EngineUnavailable as error:
            raise EngineUnavailableError(str(error)) from error
        except SandboxError as error:
            raise EvaluationError(str(error)) from error
        except (OSError, PyCompileError) as error:
            raise EvaluationError(f"what containers are made of cannot be read or written: {error}") from error
        return Environment(image=image, python=python, binds=bound, device_driver=_driver(gpu), **self._offered(gpu))

    def _offered(self, gpu: GpuType) -> dict[str, Any]:
        """What the engine adds to an environment."""
        facts = self._facts = self._facts or self._ask()
        # The host's root file system has the driver's libraries already, and no hook has a place to write there.
        return {"cdi": {} if gpu.image == HOST_IMAGE else facts.cdi, "cgroup_parent": facts.slice}

    def _ask(self) -> EngineFacts:
        try:
            return self._engine.check()
        except EngineUnavailable as error:
            raise EngineUnavailableError(str(error)) from error
        except SandboxError as error:
            raise EvaluationError(str(error)) from error

    def _system(self, place: Place) -> Json:
        """KernelBot's system facts for a GPU type, measured once by the probe container.

        Raises:
            EngineUnavailableError, EvaluationError: the probe failed.
        """
        # Another thread may forget it meanwhile.
        system_facts = self._systems.get(place.gpu.name)
        return self._probe(place, threading.Event()) if system_facts is None else system_facts

    def _probe(self, place: Place, cancel: threading.Event) -> Json:
        """Run judge and worker without a submission, in a container of their own; the system's facts.

        Raises:
            CancelledByRequest, EngineUnavailableError, EvaluationError: it failed.
        """
        gpu, plan = place.gpu, make_probe(place)
        with execute(plan, place.slot, self._without_pool, cancel=cancel) as (report, _):
            pass
        step = next((step for step in report.steps if step.name == "facts"), None)
        system = step.judged.details.get("system") if step is not None and step.judged is not None else None
        if not report.ok or not isinstance(system, Mapping):
            raise EvaluationError(
                f"the probe container for GPU type {gpu.name} (image {gpu.image}, {plan.spec.python}) did not answer: "
                f"{report.message or report.outcome.detail or report.outcome.ending} (see `kernel-runner check`)"
            )
        # The container's own host name is the same everywhere; the host's says where a run happened.
        system_facts = self._systems[gpu.name] = {**system, "hostname": self._config.host_name}
        return system_facts

    def _runner_info(self, place: Place) -> Json:
        gpu, slot, facts = place.gpu, place.slot, self._facts
        return {
            "version": __version__,
            "host": self._config.host_name,
            "slot": slot.name,
            "gpu_type": slot.gpu_type,
            "devices": [{"uuid": device.uuid, "name": device.name} for device in slot.devices],
            **({"clocks": asdict(gpu.clocks)} if slot.devices else {}),
            "cpus": list(slot.cpus),
            "image": place.environment.image,
            "harness": None if self._stage is None else self._stage.name,
            "runtime": gpu.runtime,
            "emulated": "cuda" if gpu.emulate_cuda else None,
            "engine": None if facts is None else f"docker {facts.version}",
            "kernel": platform.release(),
        }


def _driver(gpu: GpuType) -> DeviceDriver:
    """How devices of a type that have no CDI name are asked for: by NVIDIA's runtime for an image, else by node."""
    by_uuid = gpu.vendor in SUPPORTED and gpu.image != HOST_IMAGE and SUPPORTED[gpu.vendor].by_uuid
    return DeviceDriver.NVIDIA if by_uuid else DeviceDriver.NODES
