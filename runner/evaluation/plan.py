"""From a claimed job to one container and one request; pure, no I/O, no clock.

Decides which modes run, with which cases, seeds, limits and files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runner.errors import TaskError
from runner.evaluation import secret
from runner.evaluation.build_plan import PROGRAM, compile_steps, task_files
from runner.evaluation.case_memory import misfit, ranks_without_devices, tensor_bytes
from runner.evaluation.container_spec import WALL_MARGIN_S, job_labels, make_spec, pair_boot
from runner.evaluation.context import JobContext, Place
from runner.evaluation.speed_of_light import SpeedOfLight, speed_of_light
from runner.gpu_types.model import Vendor
from runner.marks import ENCODING
from runner.model import Mode
from runner.task_format import spec_line
from runner.task_format.cases import program_line
from runner.task_format.model import Case, CuConfig, Harness, PyConfig
from sandbox.protocol import PairRequest, Request, Step, StepsRequest
from sandbox.spec import Boot, SandboxSpec
from tasks.harness.judge.request import Compiled, JudgeRequest, ModeRequest

CASES_FILE = "cases.txt"


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


def make_plan(context: JobContext) -> Plan:
    """Plan one job, before it is known whether a build archive comes along (`build_plan`).

    Raises:
        TaskError: the task cannot be evaluated as asked: no cases, no eval program, a language the GPU type lacks.
    """
    task = context.task
    speeds_of_light = tuple(
        speed_of_light(task, case, context.gpu, device_name=context.device_name) for case in context.ranked_cases
    )
    modes = _modes(context, speeds_of_light)
    run_names = tuple(mode.name for mode in modes)
    case_counts = {mode.name: len(mode.cases) for mode in modes}
    shared: Mapping[str, str] = {}
    if task.harness is Harness.BUILTIN and context.job.mode in (Mode.LEADERBOARD, Mode.PRIVATE):
        # The judge times both in the same way, so one row of calls is enough. It fails as a benchmark would.
        shared = {"benchmark": "leaderboard"}
        modes = tuple(mode for mode in modes if mode.name not in shared)
    _refuse_misfits(context)
    if context.gpu.emulate_cuda:
        _refuse_what_is_not_emulated(context)
    compiler = compile_steps(context)
    built_request: Request | None = None
    if task.harness is Harness.BUILTIN:
        request: Request = _pair_request(context, modes, compiler)
        if compiler:
            built_request = _pair_request(context, modes, ())
        boot = pair_boot(context.environment)
        # The judge gives the submission's import a limit of its own, before the first mode's.
        budget_s = context.build_timeout_s + sum(mode.timeout_s for mode in modes)
    else:
        steps = _mode_steps(context, modes)
        request = StepsRequest(files=task_files(context), steps=compiler + steps)
        if isinstance(task.config, CuConfig):
            # No source goes in. A Python submission is imported all the same.
            built_request = StepsRequest(files={}, steps=steps)
        boot = Boot(kind="steps")
        budget_s = sum(step.timeout_s for step in request.steps)
    wall_s = min(budget_s + WALL_MARGIN_S, context.max_run_s)
    return Plan(
        spec=make_spec(context, boot, wall_s=wall_s, labels=job_labels(context.job)),
        request=request,
        built_request=built_request,
        harness=task.harness,
        run_names=run_names,
        shared=shared,
        case_counts=case_counts,
        speeds_of_light={name: speeds_of_light for name in run_names if name in ("benchmark", "leaderboard")},
    )


def make_probe(place: Place) -> Plan:
    """Plan a run without a submission: it tests that judge and worker start here, and returns the system's facts."""
    request = JudgeRequest(
        modes=(),
        files={},
        worker_files=(),
        submission_name="submission.py",
        submission="",
        device=place.device,
    )
    boot, labels = pair_boot(place.environment), {"kernel-runner.job": "probe"}
    return Plan(
        spec=make_spec(place, boot, wall_s=WALL_MARGIN_S, labels=labels),
        request=PairRequest(payload=request.to_payload()),
        harness=Harness.BUILTIN,
        run_names=("facts",),
        case_counts={"facts": 0},
    )


def _refuse_what_is_not_emulated(context: JobContext) -> None:
    where = f"{context.board} on {context.gpu.name}, which emulates CUDA on the CPU"
    if context.job.mode in (Mode.LEADERBOARD, Mode.PRIVATE):
        raise TaskError(f"{where}: nothing is ranked there (use mode test, benchmark or profile, or another GPU type)")
    if context.task.multi_gpu:
        raise TaskError(f"{where}: one device is emulated, the task is for several (use a type without emulate_cuda)")
    if isinstance(context.task.config, CuConfig):
        raise TaskError(f"{where}: lang cu needs a device that runs compiled code (use another GPU type)")


def _modes(context: JobContext, speeds_of_light: tuple[SpeedOfLight, ...]) -> tuple[ModeRequest, ...]:
    job, task, cases = context.job, context.task, context.cases
    test = ModeRequest(name="test", cases=_lines(context, secret.tests_of(job, cases)), timeout_s=task.test_timeout_s)
    benchmark = ModeRequest(
        name="benchmark",
        cases=_lines(context, context.ranked_cases),
        timeout_s=task.benchmark_timeout_s,
        floors=tuple(light.floor for light in speeds_of_light),
        timing=task.extra.timing,
    )
    match job.mode:
        case Mode.TEST:
            modes: tuple[ModeRequest, ...] = (test,)
        case Mode.BENCHMARK:
            modes = (benchmark,)
        case Mode.PROFILE:
            modes = tuple(
                ModeRequest(name=f"profile.{index}", cases=(line,), timeout_s=task.benchmark_timeout_s)
                for index, line in enumerate(_lines(context, cases.benchmarks or ()))
            )
        case Mode.LEADERBOARD | Mode.PRIVATE:
            leaderboard = replace(benchmark, name="leaderboard", timeout_s=task.ranked_timeout_s)
            modes = (test, benchmark, secret.timed(job, leaderboard, task))
    empty = [mode.name for mode in modes if not mode.cases]
    if empty or not modes:
        what = "tests" if empty == ["test"] else "benchmarks"
        raise TaskError(
            f"{context.board}: mode {job.mode} on {job.gpu_type} needs {what}, the task has none "
            f"(add `{what}` to task.yml, or `cases` for this GPU type to runner.yml)"
        )
    return modes


def _refuse_misfits(context: JobContext) -> None:
    for case in context.cases.every:
        problem = misfit(context.task, case, context.gpu)
        if problem is not None:
            raise TaskError(
                f"{context.board}: {problem} (give this GPU type smaller cases in runner.yml, or do "
                "not offer the leaderboard on it)"
            )


def _lines(context: JobContext, cases: tuple[Case, ...]) -> tuple[str, ...]:
    line = spec_line if context.task.harness is Harness.BUILTIN else program_line
    return tuple(line(case) for case in cases)


def _pair_request(context: JobContext, modes: tuple[ModeRequest, ...], compiler: tuple[Step, ...]) -> PairRequest:
    """The request to judge and worker; `compiler`: what the worker runs first, unless it has been built."""
    job, task, gpu = context.job, context.task, context.gpu
    ranks = _ranks(context) if task.multi_gpu else None
    compiled = None
    if isinstance(task.config, CuConfig):
        argv = next((step.argv for step in compiler if step.name == "compile"), ())
        compiled = Compiled(program=PROGRAM, argv=argv)
    request = JudgeRequest(
        modes=modes,
        # Without the task's own eval program: the judge replaces it, and it may describe hidden cases.
        files=task.judge_files,
        worker_files=task.worker_files,
        submission_name=task.submission_name,
        submission=job.code.decode(ENCODING),
        seed=context.seed,
        ranks=ranks,
        device=context.device,
        build_timeout_s=context.build_timeout_s,
        memory_bytes=tensor_bytes(gpu),
        flush_bytes=_flush_bytes(context),
        rejects_forged_times=gpu.rejects_forged_times,
        tolerance=job.demand.tolerance,
        compiled=compiled,
    )
    return PairRequest(payload=request.to_payload(), ranks=ranks)


def _flush_bytes(context: JobContext) -> int | None:
    """Bytes written between two timed calls: twice the size of all caches of the slot's device."""
    name = context.device_name
    cache_bytes = None if name is None else context.gpu.figures_of(name).cache_bytes
    return None if cache_bytes is None else int(2 * cache_bytes)


def _ranks(context: JobContext) -> int:
    """How many ranks a task of several devices has on a GPU type: one per device, or some that share its cores.

    Raises:
        TaskError: its cases differ in it, or the slot has not so many devices.
    """
    sizes = sorted({int(str(case["world_size"])) for case in context.cases.every})
    where = f"{context.board}: the cases for {context.job.gpu_type}"
    if len(sizes) != 1:
        raise TaskError(
            f"{where} have world_size {', '.join(map(str, sizes))}, expected one number for all "
            "(give the GPU type cases of its own in runner.yml)"
        )
    alone = context.gpu.vendor is Vendor.NONE
    most = ranks_without_devices(context.gpu) if alone else len(context.slot.devices)
    if sizes[0] > most:
        has = f"room for {most}" if alone else f"{most} devices"
        raise TaskError(
            f"{where} have world_size {sizes[0]}, but slot {context.slot.name} has {has} "
            "(offer the task on another GPU type, or give this one cases of its own in runner.yml)"
        )
    return sizes[0]


def _mode_steps(context: JobContext, modes: tuple[ModeRequest, ...]) -> tuple[Step, ...]:
    config, mode = context.task.config, context.job.mode
    program = (context.environment.python, config.main) if isinstance(config, PyConfig) else (f"./{PROGRAM}",)
    env: dict[str, str] = {}
    if context.task.multi_gpu:
        env["POPCORN_GPUS"] = str(max(1, len(context.slot.devices)))
    if context.seed is not None:
        env["POPCORN_SEED"] = str(context.seed)
    return tuple(
        Step(
            name=each.name,
            argv=(*program, each.name.partition(".")[0], CASES_FILE),
            env=env,
            timeout_s=each.timeout_s,
            files={CASES_FILE: ("\n".join(each.cases) + "\n").encode()},
            continue_if="always" if mode is Mode.PROFILE else "passed",
        )
        for each in modes
    )
