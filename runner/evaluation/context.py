"""A job with everything that was looked up for it, made once, before anything is planned. Pure.

`Place` is the part that does not depend on a job: probes and waiting containers have it, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.base.gpu_types.model import GpuType, Vendor
from runner.base.model import GroupJob, Job, Json, Slot, SubmissionJob, ValidationJob
from runner.evaluation.secret import seed_of
from runner.task_format.model import Case, CaseSet, Ranking, Task
from sandbox.spec import Bind, DeviceDriver

#: KernelBot gives the pre-compile run and nvcc this long.
BUILD_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The inside of a container for one GPU type, found once by the evaluator when it starts."""

    image: str
    python: str
    binds: tuple[Bind, ...]
    #: What this engine offers for the type's vendor beside CDI: NVIDIA's runtime or plain nodes.
    device_driver: DeviceDriver = DeviceDriver.NODES
    #: Devices that the engine can give by CDI: full name -> their nodes inside. They are asked for by name.
    cdi: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The slice of all containers; None: where the engine puts them.
    cgroup_parent: str | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a container runs."""

    #: The registry's entry for the slot's GPU type.
    gpu: GpuType
    slot: Slot
    environment: Environment

    @property
    def device(self) -> str:
        """What torch calls the device of judge and worker."""
        return "cpu" if self.gpu.vendor is Vendor.NONE and not self.gpu.emulate_cuda else "cuda"

    @property
    def device_name(self) -> str | None:
        """The driver's name of the slot's devices."""
        return self.slot.devices[0].name if self.slot.devices else None


@dataclass(frozen=True, kw_only=True)
class JobContext(Place):
    """A job, its place and its limits."""

    job: Job
    #: The operator's limit of the submission's first import, or of the compiler.
    build_timeout_s: float = BUILD_TIMEOUT_S
    #: The operator's cap on one evaluation; never lengthens the task's own limits.
    max_run_s: float = math.inf
    #: On the monotonic clock.
    started_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class GroupContext(JobContext):
    """A group of a batch."""

    job: GroupJob


@dataclass(frozen=True, kw_only=True)
class ValidationContext(JobContext):
    """A validation of a submission, with the task of its leaderboard."""

    job: ValidationJob
    task: Task


@dataclass(frozen=True, kw_only=True)
class SubmissionContext(JobContext):
    """The job of a submission, with the task of its leaderboard."""

    job: SubmissionJob
    task: Task
    #: KernelBot's facts of the system, and what `system_info.runner` says.
    system: Json = field(default_factory=dict)
    runner: Json = field(default_factory=dict)

    @property
    def board(self) -> str:
        """The job's leaderboard, as the beginning of a sentence."""
        return f"leaderboard {self.job.leaderboard!r}"

    @property
    def cases(self) -> CaseSet:
        """The task's cases on the job's GPU type."""
        return self.task.cases_for(self.job.gpu_type)

    @property
    def ranked_cases(self) -> tuple[Case, ...]:
        """The cases that are timed in benchmark and leaderboard mode."""
        benchmarks = self.cases.benchmarks or ()
        return benchmarks[-1:] if self.task.ranking_by is Ranking.LAST else benchmarks

    @property
    def seed(self) -> int | None:
        """The seed of the run's inputs; None: the cases' own."""
        return seed_of(self.job, self.task)
