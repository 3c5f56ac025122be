"""From a claimed job to one container and one request; pure, no I/O, no clock.

Decides which modes run, with which cases, seeds, limits and files.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runner.errors import TaskError
from runner.evaluation.case_memory import misfit, ranks_without_devices, tensor_bytes
from runner.evaluation.compile_steps import BUILD_TIMEOUT_S, PROGRAM, compile_steps, compiled_library, task_files
from runner.evaluation.container_spec import Environment, job_labels, make_spec, pair_boot
from runner.evaluation.speed_of_light import SpeedOfLight, speed_of_light
from runner.gpu_types.model import GpuType, Vendor
from runner.marks import ENCODING
from runner.model import Job, Mode, Slot
from runner.task_format import spec_line
from runner.task_format.cases import program_line
from runner.task_format.model import Case, CuConfig, Harness, PyConfig, Ranking, Task
from sandbox.protocol import PairRequest, Request, Step, StepsRequest
from sandbox.spec import (
    Boot,
    SandboxSpec,
)
from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.judge.stopping import Timing

CASES_FILE = "cases.txt"
#: Added to the sum of the programs' own limits: imports, file transfer, killing. The inner limits always end first.
WALL_MARGIN_S = 60.0
#: When the secret job, whose times do not rank, has been timed enough: a fifth of what the public one is given.
_SECRET = Timing(max_runs=20, max_kernel_s=5.0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to start, what to request, and what must be reported."""

    #: Its time limit has room for a compiler, whichever request is sent.
    spec: SandboxSpec
    request: Request
    #: Sent instead where a build archive comes along: no compiler runs. None: it makes no difference.
    built_request: Request | None = None
    harness: Harness
    #: Names of the rows of `leaderboard.runs`, in order. Each is that of a step, or of one in `shared`.
    run_names: tuple[str, ...]
    #: Rows that a step of another name reports, too: the timed calls of a ranked job are its benchmark's as well.
    shared: Mapping[str, str] = field(default_factory=dict)
    #: Cases per run name.
    case_counts: Mapping[str, int]
    #: What each case of a timed run needs at the least, by run name.
    speeds_of_light: Mapping[str, tuple[SpeedOfLight, ...]] = field(default_factory=dict)


def make_plan(
    job: Job,
    task: Task,
    gpu: GpuType,
    slot: Slot,
    environment: Environment,
    *,
    build_timeout_s: float = BUILD_TIMEOUT_S,
    max_run_s: float = math.inf,
) -> Plan:
    """Plan one job, before it is known whether a build archive comes along (`build_plan`).

    Args:
        job: what to evaluate, in which mode.
        task: the parsed task of its leaderboard.
        gpu: the registry's entry for the job's GPU type.
        slot: where it will run.
        environment: the inside of the type's containers.
        build_timeout_s: limit of the submission's first import, or of the compiler.
        max_run_s: the operator's cap on one evaluation; never lengthens the task's own limits.

    Raises:
        TaskError: the task cannot be evaluated as asked: no cases, no eval program, a language the GPU type lacks.
    """
    device_name = slot.devices[0].name if slot.devices else None
    speeds_of_light = tuple(
        speed_of_light(task, case, gpu, device_name=device_name) for case in _ranked(task, job.gpu_type)
    )
    modes = _modes(job, task, speeds_of_light)
    run_names = tuple(mode.name for mode in modes)
    case_counts = {mode.name: len(mode.cases) for mode in modes}
    shared: Mapping[str, str] = {}
    if task.harness is Harness.BUILTIN and job.mode in (Mode.LEADERBOARD, Mode.PRIVATE):
        # The judge times both in the same way, so one row of calls is enough. It fails as a benchmark would.
        shared = {"benchmark": "leaderboard"}
        modes = tuple(mode for mode in modes if mode.name not in shared)
    _refuse_misfits(job, task, gpu)
    if gpu.emulate_cuda:
        _refuse_what_is_not_emulated(job, task, gpu)
    compiler = compile_steps(job, task, gpu, environment, build_timeout_s)
    built_request: Request | None = None
    if task.harness is Harness.BUILTIN:
        request: Request = _pair_request(job, task, gpu, slot, modes, build_timeout_s, compiler)
        if compiler:
            built_request = _pair_request(job, task, gpu, slot, modes, build_timeout_s, ())
        boot = pair_boot(environment)
        # The judge gives the submission's import a limit of its own, before the first mode's.
        budget_s = build_timeout_s + sum(mode.timeout_s for mode in modes)
    else:
        steps = _mode_steps(job, task, slot, environment, modes)
        request = StepsRequest(files=task_files(job, task), steps=compiler + steps)
        if isinstance(task.config, CuConfig):
            # No source goes in. A Python submission is imported all the same.
            built_request = StepsRequest(files={}, steps=steps)
        boot = Boot(kind="steps")
        budget_s = sum(step.timeout_s for step in request.steps)
    return Plan(
        spec=make_spec(
            gpu, slot, environment, boot, wall_s=min(budget_s + WALL_MARGIN_S, max_run_s), labels=job_labels(job)
        ),
        request=request,
        built_request=built_request,
        harness=task.harness,
        run_names=run_names,
        shared=shared,
        case_counts=case_counts,
        speeds_of_light={name: speeds_of_light for name in run_names if name in ("benchmark", "leaderboard")},
    )


def make_probe(gpu: GpuType, slot: Slot, environment: Environment) -> Plan:
    """Plan a run without a submission: it tests that judge and worker start here, and returns the system's facts."""
    boot = pair_boot(environment)
    request = JudgeRequest(
        modes=(),
        files={},
        worker_files=(),
        submission_name="submission.py",
        submission="",
        device=_device(gpu),
    )
    return Plan(
        spec=make_spec(gpu, slot, environment, boot, wall_s=WALL_MARGIN_S, labels={"kernel-runner.job": "probe"}),
        request=PairRequest(payload=request.to_payload()),
        harness=Harness.BUILTIN,
        run_names=("facts",),
        case_counts={"facts": 0},
    )


def _device(gpu: GpuType) -> str:
    return "cpu" if gpu.vendor is Vendor.NONE and not gpu.emulate_cuda else "cuda"


def _refuse_what_is_not_emulated(job: Job, task: Task, gpu: GpuType) -> None:
    where = f"leaderboard {job.leaderboard!r} on {gpu.name}, which emulates CUDA on the CPU"
    if job.mode in (Mode.LEADERBOARD, Mode.PRIVATE):
        raise TaskError(f"{where}: nothing is ranked there (use mode test, benchmark or profile, or another GPU type)")
    if task.multi_gpu:
        raise TaskError(f"{where}: one device is emulated, the task is for several (use a type without emulate_cuda)")
    if isinstance(task.config, CuConfig):
        raise TaskError(f"{where}: lang cu needs a device that runs compiled code (use another GPU type)")


def _ranked(task: Task, gpu_type: str) -> tuple[Case, ...]:
    """The cases that are timed in benchmark and leaderboard mode."""
    benchmarks = task.cases_for(gpu_type).benchmarks or ()
    return benchmarks[-1:] if task.ranking_by is Ranking.LAST else benchmarks


def _modes(job: Job, task: Task, speeds_of_light: tuple[SpeedOfLight, ...]) -> tuple[ModeRequest, ...]:
    cases = task.cases_for(job.gpu_type)
    benchmarks = cases.benchmarks or ()
    tests = (*(cases.tests or ()), *((cases.hidden or ()) if job.secret else ()))
    lines, floors = _lines(task, _ranked(task, job.gpu_type)), tuple(light.floor for light in speeds_of_light)
    test = ModeRequest(name="test", cases=_lines(task, tests), timeout_s=task.test_timeout_s)
    benchmark = ModeRequest(
        name="benchmark",
        cases=lines,
        timeout_s=task.benchmark_timeout_s,
        floors=floors,
        timing=task.extra.timing,
    )
    leaderboard = replace(benchmark, name="leaderboard", timeout_s=task.ranked_timeout_s)
    match job.mode:
        case Mode.TEST:
            modes: tuple[ModeRequest, ...] = (test,)
        case Mode.BENCHMARK:
            modes = (benchmark,)
        case Mode.PROFILE:
            modes = tuple(
                ModeRequest(name=f"profile.{index}", cases=(line,), timeout_s=task.benchmark_timeout_s)
                for index, line in enumerate(_lines(task, benchmarks))
            )
        case Mode.LEADERBOARD | Mode.PRIVATE:
            if job.secret:
                leaderboard = replace(leaderboard, timing=task.extra.timing or _SECRET, ranked=False)
            modes = (test, benchmark, leaderboard)
    empty = [mode.name for mode in modes if not mode.cases]
    if empty or not modes:
        what = "tests" if empty == ["test"] else "benchmarks"
        raise TaskError(
            f"leaderboard {job.leaderboard!r}: mode {job.mode} on {job.gpu_type} needs {what}, the task has none "
            f"(add `{what}` to task.yml, or `cases` for this GPU type to runner.yml)"
        )
    return modes


def _refuse_misfits(job: Job, task: Task, gpu: GpuType) -> None:
    for case in task.cases_for(job.gpu_type).every:
        problem = misfit(task, case, gpu)
        if problem is not None:
            raise TaskError(
                f"leaderboard {job.leaderboard!r}: {problem} (give this GPU type smaller cases in runner.yml, or do "
                "not offer the leaderboard on it)"
            )


def _lines(task: Task, cases: tuple[Case, ...]) -> tuple[str, ...]:
    line = spec_line if task.harness is Harness.BUILTIN else program_line
    return tuple(line(case) for case in cases)


def derived_seed(secret_seed: int, job_id: int) -> int:
    """The seed of a secret job. No two jobs have the same data, and no submission ever sees the board's own seed.

    Returns:
        An int below 2**31, as KernelBot's secret seeds are (numpy needs less than 2**32).
    """
    digest = hmac.new(str(secret_seed).encode(), f"job {job_id}".encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:4]) & 0x7FFF_FFFF


def _pair_request(  # noqa: PLR0917 records, each of another type
    job: Job,
    task: Task,
    gpu: GpuType,
    slot: Slot,
    modes: tuple[ModeRequest, ...],
    build_timeout_s: float,
    compiler: tuple[Step, ...],
) -> PairRequest:
    ranks = _ranks(job, task, gpu, slot) if task.multi_gpu else None
    request = JudgeRequest(
        modes=modes,
        # Without the task's own eval program: the judge replaces it, and it may describe hidden cases.
        files=task.judge_files,
        worker_files=task.worker_files,
        submission_name=task.submission_name,
        submission=job.code.decode(ENCODING),
        seed=derived_seed(job.secret_seed, job.id) if job.secret else task.seed,
        ranks=ranks,
        device=_device(gpu),
        build_timeout_s=build_timeout_s,
        memory_bytes=tensor_bytes(gpu),
        flush_bytes=_flush_bytes(gpu, slot),
        rejects_forged_times=gpu.rejects_forged_times,
        tolerance=job.demand.tolerance,
        compiled=compiled_library(task, compiler),
    )
    return PairRequest(payload=request.to_payload(), ranks=ranks)


def _flush_bytes(gpu: GpuType, slot: Slot) -> int | None:
    """Bytes written between two timed calls: twice the size of all caches of the slot's device."""
    known = gpu.figures_of(slot.devices[0].name).cache_bytes if slot.devices else None
    return None if known is None else int(2 * known)


def _ranks(job: Job, task: Task, gpu: GpuType, slot: Slot) -> int:
    """How many ranks a task of several devices has on a GPU type: one per device, or some that share its cores.

    Raises:
        TaskError: its cases differ in it, or the slot has not so many devices.
    """
    sizes = sorted({int(str(case["world_size"])) for case in task.cases_for(job.gpu_type).every})
    where = f"leaderboard {job.leaderboard!r}: the cases for {job.gpu_type}"
    if len(sizes) != 1:
        raise TaskError(
            f"{where} have world_size {', '.join(map(str, sizes))}, expected one number for all "
            "(give the GPU type cases of its own in runner.yml)"
        )
    most = ranks_without_devices(gpu) if gpu.vendor is Vendor.NONE else len(slot.devices)
    if sizes[0] > most:
        has = f"room for {most}" if gpu.vendor is Vendor.NONE else f"{most} devices"
        raise TaskError(
            f"{where} have world_size {sizes[0]}, but slot {slot.name} has {has} "
            "(offer the task on another GPU type, or give this one cases of its own in runner.yml)"
        )
    return sizes[0]


def _mode_steps(
    job: Job, task: Task, slot: Slot, environment: Environment, modes: tuple[ModeRequest, ...]
) -> tuple[Step, ...]:
    program = (environment.python, task.config.main) if isinstance(task.config, PyConfig) else (f"./{PROGRAM}",)
    env: dict[str, str] = {}
    if task.multi_gpu:
        env["POPCORN_GPUS"] = str(max(1, len(slot.devices)))
    seed = derived_seed(job.secret_seed, job.id) if job.secret else task.seed
    if seed is not None:
        env["POPCORN_SEED"] = str(seed)
    return tuple(
        Step(
            name=mode.name,
            argv=(*program, mode.name.partition(".")[0], CASES_FILE),
            env=env,
            timeout_s=mode.timeout_s,
            files={CASES_FILE: ("\n".join(mode.cases) + "\n").encode()},
            continue_if="always" if job.mode is Mode.PROFILE else "passed",
        )
        for mode in modes
    )
