"""What compiles a submission, and whether it is built before it has a device; pure, no I/O, no clock.

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

from runner.base.errors import TaskError
from runner.base.gpu_types.model import GpuType, Vendor
from runner.evaluation.container_spec import CACHES, STAGE, WALL_MARGIN_S, harness_process, job_labels, make_spec
from runner.evaluation.context import Place, SubmissionContext
from runner.task_format.model import HARNESS, SUBMISSION, CuConfig, Harness, Task
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Boot, SandboxSpec

#: What nvcc makes of a task's sources.
PROGRAM: Final = "eval.out"
#: Under the built-in harness that is a library for the worker to call, which finds the call's layout in a header.
_LIBRARY_FLAGS: Final = ("-shared", "-Xcompiler=-fPIC", f"-I{STAGE}/tasks/harness/include")
#: Words of Python submissions that compile something during the import, into one of CACHES. Triton's and
#: torch.compile's kernels are compiled when they are first called, with inputs and on the device: a build has neither.
_BUILDS: Final = re.compile(rb"load_inline|cpp_extension|triton\.compile\s*\(|\.warmup\s*\(|aot_compile|aoti_compile")
#: Submissions that name it may compile. Candidates of KernelBook's form all name it, for helpers of their launches.
_INDUCTOR: Final = b"torch._inductor"
#: Name of the step that says whether a submission is Python.
PARSE: Final = "parse"
_PARSE_TIMEOUT_S: Final = 10.0
#: Exit code of a candidate's build that compilers have refused, and of a file that is no Python.
REFUSED: Final = 3


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


def make_build_plan(context: SubmissionContext, *, cpus: tuple[int, ...]) -> BuildPlan:
    """Plan the build of a submission, on these cores; its cases and seeds stay out of it."""
    task = context.task
    files = task_files(context) if task.harness is Harness.PROGRAM else _shown_files(context)
    if isinstance(task.config, CuConfig) or task.harness is Harness.PROGRAM:
        steps: tuple[Step, ...] = compile_steps(context)
    else:
        argv = (*harness_process(context.environment, "prebuild"), task.submission_name)
        steps = (Step(name="compile", argv=argv, timeout_s=context.build_timeout_s, result_pipe=False),)
    labels = {**job_labels(context.job), "kernel-runner.build": str(context.job.submission_id)}
    keep = (PROGRAM,) if isinstance(task.config, CuConfig) else tuple(CACHES.values())
    return plan_build(context, StepsRequest(files=files, steps=steps, keep=keep), cpus, labels)


def make_parse_plan(context: SubmissionContext, *, cpus: tuple[int, ...]) -> BuildPlan:
    """Plan a look whether a submission is Python, on these cores; nothing of it runs."""
    name = context.task.submission_name
    argv = (*harness_process(context.environment, "parse"), name, str(REFUSED))
    step = Step(name=PARSE, argv=argv, timeout_s=_PARSE_TIMEOUT_S, result_pipe=False)
    labels = {**job_labels(context.job), "kernel-runner.build": str(context.job.submission_id)}
    return plan_build(context, StepsRequest(files={name: context.job.code}, steps=(step,)), cpus, labels)


def plan_build(place: Place, request: StepsRequest, cpus: tuple[int, ...], labels: Mapping[str, str]) -> BuildPlan:
    """The container for a request, on these cores."""
    spec = make_spec(
        # The same container but for its cores, and without the device.
        replace(place, slot=replace(place.slot, cpus=cpus, devices=(), numa_node=None)),
        Boot(kind="steps", loopback=False),
        wall_s=sum(step.timeout_s for step in request.steps) + WALL_MARGIN_S,
        labels=labels,
    )
    return BuildPlan(spec=spec, request=request)


def _shown_files(context: SubmissionContext) -> dict[str, bytes]:
    """The worker's folder under the built-in harness: the submission, and the files of its task that it may see."""
    task = context.task
    shown = {name: task.judge_files[name].encode() for name in task.worker_files}
    return shown | {task.submission_name: context.job.code}


def task_files(context: SubmissionContext) -> dict[str, bytes]:
    """What lies in /work when a task's own programs run.

    Raises:
        TaskError: one of them is not there: the task names the built-in eval program and does not use it.
    """
    files = context.task.files
    missing = next((name for name, text in files.items() if text == HARNESS), None)
    if missing is not None:
        raise TaskError(
            f"{context.board}: files.{missing} is {HARNESS}, but the task is evaluated by its own "
            "program (remove `harness: program` from runner.yml, or give the file a source)"
        )
    return {name: context.job.code if text == SUBMISSION else text.encode() for name, text in files.items()}


def compile_steps(context: SubmissionContext) -> tuple[Step, ...]:
    """The programs that compile a submission before its first mode.

    Raises:
        TaskError: the GPU type has no such compiler, or the task no such program.
    """
    task, gpu = context.task, context.gpu
    if isinstance(task.config, CuConfig):
        if gpu.vendor not in (Vendor.NVIDIA, Vendor.NONE):
            raise TaskError(
                f"{context.board}: lang cu needs nvcc, the vendor of {gpu.name} is {gpu.vendor} "
                "(offer the leaderboard on NVIDIA types only)"
            )
        return _nvcc_steps(context, task.config)
    if task.harness is Harness.BUILTIN:
        # The worker imports the submission itself, before the clock of the first mode.
        return ()
    if task.config.main not in task.files:
        raise TaskError(
            f"{context.board}: config.main is {task.config.main!r}, which is none of the task's "
            f"files ({', '.join(task.files)})"
        )
    # Importing the submission once fills its compile caches before the first mode; its failure is no verdict.
    return (
        Step(
            name="compile",
            argv=(context.environment.python, task.submission_name),
            env={"POPCORN_SEED": "1"},
            timeout_s=context.build_timeout_s,
            result_pipe=False,
        ),
    )


def _nvcc_steps(context: SubmissionContext, config: CuConfig) -> tuple[Step, ...]:
    task, gpu = context.task, context.gpu
    if gpu.vendor is Vendor.NONE:
        arch: tuple[str, ...] = ()
    elif gpu.nvcc_arch is None:
        arch = ("-arch=native",)
    else:
        arch = (f"-gencode=arch=compute_{gpu.nvcc_arch},code=sm_{gpu.nvcc_arch}",)
    argv = (
        "nvcc",
        "--std=c++20",
        "-O3",
        "-DNDEBUG",
        *arch,
        *(_LIBRARY_FLAGS if task.harness is Harness.BUILTIN else ()),
        *(f"-I{path}" for path in config.include_dirs),
        *(f"-D{name}={value}" for name, value in config.defines.items()),
        *config.sources,
        "-o",
        PROGRAM,
    )
    return (
        Step(name="nvcc-version", argv=("nvcc", "--version"), timeout_s=30.0, result_pipe=False, continue_if="exit_0"),
        Step(
            name="compile",
            argv=argv,
            timeout_s=context.build_timeout_s,
            result_pipe=False,
            continue_if="exit_0",
            # The program must not find the sources it was judged by.
            remove_after=tuple(task.files),
        ),
    )
