"""From a claimed job to one sandbox and one request; pure, no I/O, no clock.

Decides which programs run, with which cases, seeds, limits and files. `runner.evaluation.verdict`
judges what comes back.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runner.errors import TaskError
from runner.evaluation.speed_of_light import SpeedOfLight, speed_of_light
from runner.gpu_types.model import GpuType, Vendor
from runner.model import Job, Mode, Slot
from runner.task_format import spec_line
from runner.task_format.model import HARNESS, SUBMISSION, Case, CuConfig, Harness, PyConfig, Ranking, Task
from runner.task_format.work import WorkError, work
from sandbox.protocol import PairRequest, Request, Step, StepsRequest
from sandbox.spec import (
    JUDGE_UID,
    WORKER_UID,
    Bind,
    Boot,
    DeviceDriver,
    Devices,
    Limits,
    SandboxSpec,
    Tmpfs,
)
from tasks.harness.request import Compiled, JudgeRequest, ModeRequest
from tasks.harness.stopping import Timing

#: Where the steward and the harness are mounted inside every container.
STAGE = "/kernel-runner"
CASES_FILE = "cases.txt"
#: Says on whose cores and devices a container is, to whoever finds it later.
SLOT_LABEL = "kernel-runner.slot"
#: What nvcc makes of a task's sources.
PROGRAM = "eval.out"
#: Under the built-in harness that is a library for the worker to call, which finds the call's layout in a header.
LIBRARY_FLAGS = ("-shared", "-Xcompiler=-fPIC", f"-I{STAGE}/tasks/harness/include")
#: Where compilers that a submission calls keep what they made, below /work: variable -> folder.
CACHES = {
    "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions",
    "TRITON_CACHE_DIR": ".cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/torchinductor",
}
#: KernelBot gives the pre-compile run and nvcc this long.
BUILD_TIMEOUT_S = 120.0
#: Added to the sum of the programs' own limits: imports, file transfer, killing. The inner limits always end first.
WALL_MARGIN_S = 60.0
#: The part of its memory that one case's tensors may fill (inputs, outputs, copies); torch takes the rest.
_TENSOR_MEMORY_SHARE = 0.5
#: What a rank without a device needs beside tensors: two processes with torch, and room to breathe.
_RANK_GIB = 0.75

#: When a benchmark that only precedes the ranked step has been timed enough: half of what it is given alone.
_HALF = Timing(width=0.008, max_runs=50, max_kernel_s=5.0)
_PROCESS = 'import sys; sys.path.insert(0, "{stage}"); from {module} import main; sys.exit(main())'


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The inside of a container for one GPU type, found once by the evaluator when it starts."""

    image: str
    python: str
    binds: tuple[Bind, ...]
    #: CDI, the NVIDIA runtime or plain nodes, whichever this engine offers for the type's vendor.
    device_driver: DeviceDriver = DeviceDriver.NODES
    #: The slice of all containers; None: where the engine puts them.
    cgroup_parent: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to start, what to ask, and what must come back."""

    spec: SandboxSpec
    request: Request
    harness: Harness
    #: Names of the steps that become rows of `leaderboard.runs`, in order.
    run_names: tuple[str, ...]
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
    built: bool = False,
) -> Plan:
    """Plan one job.

    Args:
        job: what to evaluate, in which mode.
        task: the parsed task of its leaderboard.
        gpu: the registry's entry for the job's GPU type.
        slot: where it will run.
        environment: the inside of the type's containers.
        build_timeout_s: limit of the submission's first import, or of the compiler.
        max_run_s: the operator's cap on one evaluation; never lengthens the task's own limits.
        built: whether a bundle comes along (`build_plan`): then no compiler runs, and no source goes in. A Python
            submission is imported all the same.

    Raises:
        TaskError: the task cannot be evaluated as asked: no cases, no eval program, a language the GPU type lacks.
    """
    device_name = slot.devices[0].name if slot.devices else None
    speeds_of_light = tuple(
        speed_of_light(task, case, gpu, device_name=device_name) for case in _ranked(task, job.gpu_type)
    )
    modes = _modes(job, task, speeds_of_light)
    _refuse_misfits(job, task, gpu)
    if gpu.emulate_cuda:
        _refuse_what_is_not_emulated(job, task, gpu)
    if task.harness is Harness.BUILTIN:
        compiler = () if built else compile_steps(job, task, gpu, environment, build_timeout_s)
        request: Request = _pair_request(job, task, gpu, slot, modes, build_timeout_s, compiler)
        boot = Boot(
            kind="pair", judge=harness_process(environment, "judge"), worker=harness_process(environment, "worker")
        )
        # The judge gives the submission's import a limit of its own, before the first mode's.
        budget_s = build_timeout_s + sum(mode.timeout_s for mode in modes)
    else:
        compiled = built and isinstance(task.config, CuConfig)
        compiling = () if compiled else compile_steps(job, task, gpu, environment, build_timeout_s)
        steps = compiling + _mode_steps(job, task, slot, environment, modes)
        request = StepsRequest(files={} if compiled else task_files(job, task), steps=steps)
        boot = Boot(kind="steps")
        budget_s = sum(step.timeout_s for step in steps)
    return Plan(
        spec=make_spec(
            gpu, slot, environment, boot, wall_s=min(budget_s + WALL_MARGIN_S, max_run_s), labels=job_labels(job)
        ),
        request=request,
        harness=task.harness,
        run_names=tuple(mode.name for mode in modes),
        case_counts={mode.name: len(mode.cases) for mode in modes},
        speeds_of_light={mode.name: speeds_of_light for mode in modes if mode.name in ("benchmark", "leaderboard")},
    )


def make_probe(gpu: GpuType, slot: Slot, environment: Environment) -> Plan:
    """Plan a run without a submission: it proves that judge and worker start here and returns the facts of the box."""
    boot = _pair_boot(environment)
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


def make_spec(  # noqa: D417 the arguments are records
    gpu: GpuType, slot: Slot, environment: Environment, boot: Boot, *, wall_s: float, labels: Mapping[str, str]
) -> SandboxSpec:
    """The container for a slot; the same for every submission on a GPU type.

    Args:
        wall_s: seconds from the request to the end of the report, after which the container is killed.
    """
    scratch_bytes = gpu.scratch_mib << 20
    tmpfs = [
        Tmpfs(target="/work", size_bytes=scratch_bytes, uid=WORKER_UID, gid=WORKER_UID),
        Tmpfs(target="/tmp", size_bytes=scratch_bytes, uid=WORKER_UID, gid=WORKER_UID, mode=0o1777),  # noqa: S108 the container's own
    ]
    if boot.kind == "pair":
        tmpfs.append(Tmpfs(target="/judge", size_bytes=scratch_bytes, uid=JUDGE_UID, gid=JUDGE_UID))
    return SandboxSpec(
        image=environment.image,
        python=environment.python,
        boot=boot,
        limits=Limits(
            wall_s=wall_s,
            memory_bytes=int(gpu.memory_gib * (1 << 30)),
            pids=gpu.pids,
            cpus=slot.cpus,
            mems=None if slot.numa_node is None else (slot.numa_node,),
            shm_bytes=gpu.shm_mib << 20,
            # Also bounds the memory files in which tensors cross, so no smaller than what a case may hold.
            fsize_bytes=int(gpu.memory_gib * (1 << 30)),
        ),
        binds=environment.binds,
        tmpfs=tuple(tmpfs),
        devices=_devices(slot, environment),
        cgroup_parent=environment.cgroup_parent,
        environment={
            "HOME": "/work",
            "TMPDIR": "/tmp",  # noqa: S108 the container's own
            "USER": "worker",
            "LOGNAME": "worker",
            "LANG": "C.UTF-8",
            "PATH": _path(environment.python),
            # Sources live on a tmpfs that is thrown away: compiled files would only cost memory.
            "PYTHONDONTWRITEBYTECODE": "1",
            **{variable: f"/work/{folder}" for variable, folder in CACHES.items()},
            **_torch_architectures(gpu),
            **(_emulation(gpu) if gpu.emulate_cuda else {}),
            **gpu.environment,
        },
        labels={**labels, SLOT_LABEL: slot.name},
        runtime=gpu.runtime,
    )


def _path(python: str) -> str:
    own = python.rpartition("/")[0]
    system = ("/usr/local/cuda/bin", "/opt/rocm/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
    return ":".join(dict.fromkeys((own, *system, "/sbin", "/bin")))


def _torch_architectures(gpu: GpuType) -> dict[str, str]:
    """For which device torch builds extensions: it would ask the device, which is not there where it is built."""
    if gpu.nvcc_arch is None:
        return {}
    number = gpu.nvcc_arch.rstrip("abcdefghijklmnopqrstuvwxyz")
    return {"TORCH_CUDA_ARCH_LIST": f"{number[:-1]}.{number[-1:]}{gpu.nvcc_arch[len(number) :]}"}


def job_labels(job: Job) -> dict[str, str]:
    """What a container is for, for people who list containers."""
    return {
        "kernel-runner.job": str(job.id),
        "kernel-runner.attempt": str(job.attempt),
        "kernel-runner.submission": str(job.submission_id),
    }


def _pair_boot(environment: Environment) -> Boot:
    return Boot(kind="pair", judge=harness_process(environment, "judge"), worker=harness_process(environment, "worker"))


def harness_process(environment: Environment, name: str) -> tuple[str, ...]:
    """What to run for a process of the built-in harness: judge, worker, or what imports a submission to build it."""
    return (environment.python, "-I", "-c", _PROCESS.format(stage=STAGE, module=f"tasks.harness.{name}"))


def _devices(slot: Slot, environment: Environment) -> Devices | None:
    if not slot.devices:
        return None
    groups = tuple(sorted({group for device in slot.devices for group in device.groups}))
    match environment.device_driver:
        case DeviceDriver.CDI:
            vendor = "nvidia.com/gpu" if slot.devices[0].vendor == Vendor.NVIDIA else "amd.com/gpu"
            names = tuple(f"{vendor}={device.uuid}" for device in slot.devices)
            return Devices(driver=DeviceDriver.CDI, ids=names, groups=groups)
        case DeviceDriver.NVIDIA:
            uuids = tuple(device.uuid for device in slot.devices)
            return Devices(driver=DeviceDriver.NVIDIA, ids=uuids, groups=groups)
        case DeviceDriver.NODES:
            nodes = dict.fromkeys(node for device in slot.devices for node in device.nodes)
            return Devices(driver=DeviceDriver.NODES, ids=tuple(nodes), groups=groups)


def _device(gpu: GpuType) -> str:
    return "cpu" if gpu.vendor is Vendor.NONE and not gpu.emulate_cuda else "cuda"


def _emulation(gpu: GpuType) -> dict[str, str]:
    """What tells processes in the container to emulate a CUDA device; PYTHONPATH is for those a task starts itself."""
    return {"KR_EMULATE_CUDA": str(tensor_bytes(gpu)), "PYTHONPATH": f"{STAGE}/tasks/harness/emulate/site"}


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
    lines, floors = _lines(_ranked(task, job.gpu_type)), tuple(light.floor for light in speeds_of_light)
    test = ModeRequest(name="test", cases=_lines(tests), timeout_s=task.test_timeout_s)
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
                for index, line in enumerate(_lines(benchmarks))
            )
        case Mode.LEADERBOARD | Mode.PRIVATE:
            # The step that ranks nothing takes half, unless the task has said what it wants.
            modes = (test, replace(benchmark, timing=task.extra.timing or _HALF), leaderboard)
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


def _lines(cases: tuple[Case, ...]) -> tuple[str, ...]:
    return tuple(spec_line(case) for case in cases)


def derived_seed(secret_seed: int, job_id: int) -> int:
    """The seed that an in-process eval gets for a secret job, so that no submission ever sees the board's own.

    Returns:
        An int below 2**31, as KernelBot's secret seeds are (numpy needs less than 2**32).
    """
    digest = hmac.new(str(secret_seed).encode(), f"job {job_id}".encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:4]) & 0x7FFF_FFFF


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory that a case's tensors share on a GPU type."""

    gib: float
    #: Whose it is, as words in a sentence.
    name: str


def memory_of(gpu: GpuType, harness: Harness) -> Memory:
    """What bounds a case's tensors: its devices' own memory, and the container's where they must pass through that."""
    container = Memory(gib=gpu.memory_gib, name=f"the {gpu.memory_gib:g} GiB of {gpu.name}'s container")
    if gpu.vendor is Vendor.NONE or gpu.device.memory_gib is None:
        return container
    each = f"{gpu.count} x {gpu.device.memory_gib:g} GiB" if gpu.count > 1 else f"{gpu.device.memory_gib:g} GiB"
    devices = Memory(gib=gpu.device.memory_gib * gpu.count, name=f"the {each} of {gpu.name}'s device memory")
    # Under the built-in harness inputs and outputs cross between judge and worker in the host's memory.
    return min(devices, container, key=lambda memory: memory.gib) if harness is Harness.BUILTIN else devices


def tensor_bytes(gpu: GpuType, harness: Harness = Harness.BUILTIN) -> int:
    """How many bytes of tensors a case may hold on a GPU type, in judge and workers together."""
    return int(memory_of(gpu, harness).gib * (1 << 30) * _TENSOR_MEMORY_SHARE)


def moved_bytes(task: Task, case: Case) -> float:
    """What a case reads and writes by the task's `bytes`; 0 where that says nothing, as it may for a test."""
    if task.extra.bytes is None:
        return 0.0
    try:
        return work(task.extra.bytes, case)
    except WorkError:
        return 0.0


def misfit(task: Task, case: Case, gpu: GpuType) -> str | None:
    """Why a case cannot fit a GPU type whatever a submission does, as a sentence; None if it may."""
    memory = memory_of(gpu, task.harness)
    # What is read and then written in place counts twice in `bytes`.
    least_gib = moved_bytes(task, case) / 2 / (1 << 30)
    if least_gib <= memory.gib:
        return None
    return (
        f"case {spec_line(case)} has at least {least_gib:.4g} GiB of tensors (half of its `bytes`), more than "
        f"{memory.name}"
    )


def ranks_without_devices(gpu: GpuType) -> int:
    """For how many ranks a type without accelerator has room."""
    return int(gpu.memory_gib / _RANK_GIB)


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
        submission=job.code.decode("utf-8"),
        seed=job.secret_seed if job.secret else task.seed,
        ranks=ranks,
        device=_device(gpu),
        build_timeout_s=build_timeout_s,
        memory_bytes=tensor_bytes(gpu),
        flush_bytes=_flush_bytes(gpu, slot),
        rejects_forged_times=gpu.rejects_forged_times,
        tolerance=job.demand.tolerance,
        compiled=_compiled(task, compiler),
    )
    return PairRequest(payload=request.to_payload(), ranks=ranks or 1)


def _flush_bytes(gpu: GpuType, slot: Slot) -> int | None:
    """What is written between two timed calls: twice what all caches of the slot's device hold."""
    known = gpu.figures_of(slot.devices[0].name).cache_bytes if slot.devices else None
    return None if known is None else int(2 * known)


def _compiled(task: Task, compiler: tuple[Step, ...]) -> Compiled | None:
    """The library that a submission of lang cu becomes, and how, unless it has been built."""
    if not isinstance(task.config, CuConfig):
        return None
    return Compiled(program=PROGRAM, argv=next((step.argv for step in compiler if step.name == "compile"), ()))


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
