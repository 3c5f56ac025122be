"""Whether a submission is built before it has a device, and how; pure, no I/O, no clock.

A build has a container of its own, with the same policy and no device. It does what the run would begin with: nvcc for
lang cu, importing the submission for Python, running the file for a candidate of a group. The compilers' caches travel
to the runs as a build archive. An import may fail without a device and succeed with one, so only lang cu builds have a
verdict, and candidates that compilers refuse where the type has no device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from runner.evaluation.compile_steps import PROGRAM, compile_steps, task_files
from runner.evaluation.container_spec import CACHES, Environment, harness_process, job_labels, make_spec
from runner.evaluation.plan import WALL_MARGIN_S
from runner.gpu_types.model import GpuType, Vendor
from runner.model import Job, Slot
from runner.task_format.model import CuConfig, Harness, Task
from sandbox.protocol import MAX_ARCHIVE_BYTES, Step, StepsRequest
from sandbox.spec import Boot, SandboxSpec
from tasks.harness.judge.modules.group import Candidate

#: Words of Python submissions that compile something during the import, into one of CACHES. Triton's and
#: torch.compile's kernels are compiled when they are first called, with inputs and on the device: a build has neither.
_BUILDS: Final = re.compile(rb"load_inline|cpp_extension|triton\.compile\s*\(|\.warmup\s*\(|aot_compile|aoti_compile")
#: Submissions that name it may compile. Candidates of KernelBook's form all name it, for helpers of their launches.
_INDUCTOR: Final = b"torch._inductor"


#: Exit code of a module's build that compilers have refused, and the name of its file.
REFUSED: Final = 3
_MODULE_FILE: Final = "candidate.py"


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """The container that builds, and the request to it."""

    spec: SandboxSpec
    request: StepsRequest


def should_build(code: bytes, task: Task, gpu: GpuType) -> bool:
    """Whether a build probably saves time. A wrong guess costs time, never a verdict."""
    if isinstance(task.config, CuConfig):
        # Without a known architecture nvcc asks the device for it.
        return gpu.vendor is Vendor.NONE or gpu.nvcc_arch is not None
    return _INDUCTOR in code or compiles(code)


def compiles(code: bytes) -> bool:
    """Whether a candidate's file probably compiles something when it runs."""
    return _BUILDS.search(code) is not None


def make_build_plan(
    job: Job,
    task: Task,
    gpu: GpuType,
    slot: Slot,
    environment: Environment,
    *,
    cpus: tuple[int, ...],
    build_timeout_s: float,
) -> BuildPlan:
    """Plan the build of a job that has a plan.

    Args:
        job: whose submission is built; its cases and seeds stay out of it.
        task: the parsed task of its leaderboard.
        gpu: the registry's entry for the job's GPU type.
        slot: where the job will run.
        environment: the inside of the type's containers.
        cpus: the cores to build on.
        build_timeout_s: limit of the compiler, or of the import.

    Raises:
        TaskError: as `make_plan`.
    """
    if isinstance(task.config, CuConfig) or task.harness is Harness.PROGRAM:
        files = task_files(job, task) if task.harness is Harness.PROGRAM else _shown_files(job, task)
        steps: tuple[Step, ...] = compile_steps(job, task, gpu, environment, build_timeout_s)
    else:
        files = _shown_files(job, task)
        argv = (*harness_process(environment, "prebuild"), task.submission_name)
        steps = (Step(name="compile", argv=argv, timeout_s=build_timeout_s, result_pipe=False),)
    labels = {**job_labels(job), "kernel-runner.build": str(job.submission_id)}
    keep = (PROGRAM,) if isinstance(task.config, CuConfig) else tuple(CACHES.values())
    return _plan(StepsRequest(files=files, steps=steps, keep=keep), gpu, replace(slot, cpus=cpus), environment, labels)


def make_module_build_plan(
    candidate: Candidate,
    gpu: GpuType,
    slot: Slot,
    environment: Environment,
    *,
    cpus: tuple[int, ...],
    build_timeout_s: float,
    labels: Mapping[str, str],
) -> BuildPlan:
    """Plan the build of a candidate of a group: its file alone, in a container of its own.

    Args:
        candidate: what is built; no other candidate and nothing of the reference is there.
        gpu: the registry's entry for the group's GPU type.
        slot: where the group will run.
        environment: the inside of the type's containers.
        cpus: the cores to build on.
        build_timeout_s: limit of the file's run.
        labels: of the container.
    """
    argv = (*harness_process(environment, "prebuild"), _MODULE_FILE, str(REFUSED), *candidate.entry_points)
    step = Step(name="compile", argv=argv, timeout_s=build_timeout_s, result_pipe=False)
    files = {_MODULE_FILE: candidate.code.encode("utf-8", "surrogatepass")}
    request = StepsRequest(files=files, steps=(step,), keep=tuple(CACHES.values()))
    labels = {**labels, "kernel-runner.build": f"candidate {candidate.id}"}
    return _plan(request, gpu, replace(slot, cpus=cpus), environment, labels)


def _plan(
    request: StepsRequest, gpu: GpuType, slot: Slot, environment: Environment, labels: Mapping[str, str]
) -> BuildPlan:
    spec = make_spec(
        gpu,
        # The same container but for its cores, and without the device.
        replace(slot, devices=(), numa_node=None),
        environment,
        Boot(kind="steps"),
        wall_s=sum(step.timeout_s for step in request.steps) + WALL_MARGIN_S,
        labels=dict(labels),
    )
    # The archive is part of the report, a third larger as base64.
    report_bytes = spec.limits.report_bytes + MAX_ARCHIVE_BYTES * 3 // 2
    return BuildPlan(spec=replace(spec, limits=replace(spec.limits, report_bytes=report_bytes)), request=request)


def _shown_files(job: Job, task: Task) -> dict[str, bytes]:
    """The worker's folder under the built-in harness: the submission, and the files of its task that it may see."""
    return {name: task.judge_files[name].encode() for name in task.worker_files} | {task.submission_name: job.code}
