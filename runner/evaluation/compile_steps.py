"""The programs that compile a submission before its first mode, and the files they need. Pure."""

from __future__ import annotations

from runner.errors import TaskError
from runner.evaluation.container_spec import STAGE, Environment
from runner.gpu_types.model import GpuType, Vendor
from runner.model import Job
from runner.task_format.model import HARNESS, SUBMISSION, CuConfig, Harness, Task
from sandbox.protocol import Step
from tasks.harness.judge.request import Compiled

#: What nvcc makes of a task's sources.
PROGRAM = "eval.out"
#: Under the built-in harness that is a library for the worker to call, which finds the call's layout in a header.
LIBRARY_FLAGS = ("-shared", "-Xcompiler=-fPIC", f"-I{STAGE}/tasks/harness/include")
#: KernelBot gives the pre-compile run and nvcc this long.
BUILD_TIMEOUT_S = 120.0


def compiled_library(task: Task, compiler: tuple[Step, ...]) -> Compiled | None:
    """The library that a submission of lang cu becomes, and how, unless it has been built."""
    if not isinstance(task.config, CuConfig):
        return None
    return Compiled(program=PROGRAM, argv=next((step.argv for step in compiler if step.name == "compile"), ()))


def task_files(job: Job, task: Task) -> dict[str, bytes]:
    """What lies in /work when a task's own programs run.

    Raises:
        TaskError: one of them is not there: the task names the built-in eval program and does not use it.
    """
    found = [name for name, text in task.files.items() if text == HARNESS]
    if found:
        raise TaskError(
            f"leaderboard {job.leaderboard!r}: files.{found[0]} is {HARNESS}, but the task is evaluated by its own "
            "program (remove `harness: program` from runner.yml, or give the file a source)"
        )
    return {name: job.code if text == SUBMISSION else text.encode() for name, text in task.files.items()}


def compile_steps(
    job: Job, task: Task, gpu: GpuType, environment: Environment, build_timeout_s: float
) -> tuple[Step, ...]:
    """What runs before the first mode of a task's own program.

    Raises:
        TaskError: the GPU type has no such compiler, or the task no such program.
    """
    if isinstance(task.config, CuConfig):
        if gpu.vendor is Vendor.AMD:
            raise TaskError(
                f"leaderboard {job.leaderboard!r}: lang cu needs nvcc, {gpu.name} is an AMD type "
                "(offer the leaderboard on NVIDIA types only)"
            )
        return _nvcc_steps(task, task.config, gpu, build_timeout_s)
    if task.harness is Harness.BUILTIN:
        # The worker imports the submission itself, before the clock of the first mode.
        return ()
    if task.config.main not in task.files:
        raise TaskError(
            f"leaderboard {job.leaderboard!r}: config.main is {task.config.main!r}, which is none of the task's "
            f"files ({', '.join(task.files)})"
        )
    return _precompile_steps(task, environment, build_timeout_s)


def _precompile_steps(task: Task, environment: Environment, build_timeout_s: float) -> tuple[Step, ...]:
    """Importing the submission once fills its compile caches before the first mode; its failure is no verdict."""
    return (
        Step(
            name="compile",
            argv=(environment.python, task.submission_name),
            env={"POPCORN_SEED": "1"},
            timeout_s=build_timeout_s,
            result_pipe=False,
        ),
    )


def _nvcc_steps(task: Task, config: CuConfig, gpu: GpuType, build_timeout_s: float) -> tuple[Step, ...]:
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
        *(LIBRARY_FLAGS if task.harness is Harness.BUILTIN else ()),
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
            timeout_s=build_timeout_s,
            result_pipe=False,
            continue_if="exit_0",
            # The program must not find the sources it was judged by.
            remove_after=tuple(task.files),
        ),
    )
