"""What is planned for a job: programs, cases, seeds, files, limits."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
import torch

from runner.base.errors import TaskError
from runner.base.gpu_types import Registry
from runner.base.gpu_types.model import GpuType
from runner.base.model import Demand, Device, FinalJob, Mode, ProfileOptions, TimingAssurance
from runner.evaluation.container_spec import cdi_name, make_spec, pair_boot
from runner.evaluation.context import SubmissionContext
from runner.evaluation.kinds.program import CASES_FILE
from runner.evaluation.plan import Plan, make_probe
from runner.evaluation.secret import derived_seed
from runner.task_format.case_memory import tensor_bytes
from runner.task_format.model import HARNESS, CaseSet, Extra, Harness, Ranking, Task, Timing
from sandbox.inside.boot import parse_boot
from sandbox.policy.hostconfig import boot_document
from sandbox.protocol import PairRequest, Step, StepsRequest
from sandbox.spec import Boot, DeviceDriver, Owner
from tasks.harness.judge.request import JudgeRequest
from tasks.harness.judge.stopping import Stopping
from tasks.harness.judge.stopping import Timing as JudgeTiming
from tasks.harness.shared.cores import judge_core
from tasks.harness.shared.profilers import NCU_FILES, Capture
from tests.unit import samples


def judge_request(plan: Plan) -> JudgeRequest:
    """The judge's request inside a plan."""
    assert isinstance(plan.request, PairRequest)
    return JudgeRequest.from_payload(plan.request.payload)


def steps(plan: Plan) -> dict[str, Step]:
    """The programs inside a plan, by name."""
    assert isinstance(plan.request, StepsRequest)
    return {step.name: step for step in plan.request.steps}


def plan_of(context: SubmissionContext) -> Plan:
    """The plan of a job."""
    return samples.submission(context).plan


def planned(
    task: Task,
    *,
    mode: Mode = Mode.LEADERBOARD,
    secret: bool = False,
    options: ProfileOptions = ProfileOptions(),  # noqa: B008 - frozen
    **place: Any,  # noqa: ANN401 - fields of the context
) -> Plan:
    """A plan on the CPU type unless told otherwise."""
    gpu_type = place.get("gpu", samples.CPU).name
    job = samples.job(mode=mode, secret=secret, options=options, gpu_type=gpu_type)
    return plan_of(samples.context(task, job=job, **place))


_NODES = ("/dev/nvidia0", "/dev/nvidiactl")
_NVIDIA_0 = Device(uuid="GPU-0", name="H100", vendor="nvidia", index=0, nodes=_NODES)
_AMD_3 = Device(uuid="u3", name="MI300X", vendor="amd", index=3, nodes=("/dev/kfd", "/dev/dri/renderD131"))
_ONE_AMD = replace(samples.SLOT, name="amd0", devices=(Device(uuid="u", name="x", vendor="amd", index=0),))


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        (Mode.TEST, ("test",)),
        (Mode.BENCHMARK, ("benchmark",)),
        (Mode.LEADERBOARD, ("test", "benchmark", "leaderboard")),
        (Mode.PRIVATE, ("test", "benchmark", "leaderboard")),
        (Mode.PROFILE, ("profile.0", "profile.1")),
    ],
)
@pytest.mark.parametrize("harness", Harness)
def test_each_mode_runs_its_chain(mode: Mode, names: tuple[str, ...], harness: Harness) -> None:
    """The rows a mode leaves behind are those of the contract, under either harness."""
    assert planned(samples.task(harness=harness), mode=mode).run_names == names


def test_the_worker_is_not_given_the_reference_the_eval_program_or_private_files() -> None:
    """Only the judge sees what would give the answer away."""
    task = samples.task(extra_files={"hidden.py": "secret cases", "utils.py": "helpers"}, private=("hidden.py",))
    request = judge_request(planned(task))
    assert set(request.files) == {"reference.py", "task.py", "hidden.py", "utils.py"}
    assert set(request.worker_files) == {"task.py", "utils.py"}
    assert request.submission == "x = 1\n"


def test_the_public_run_has_the_tasks_seed_and_a_secret_run_one_of_its_own() -> None:
    """No seed for a public run unless the task names one; no two secret jobs have the same, under either harness."""
    assert judge_request(planned(samples.task())).seed is None
    assert judge_request(planned(samples.task(seed=5))).seed == 5
    secret = derived_seed(123456, "job 7")
    assert judge_request(planned(samples.task(seed=5), secret=True)).seed == secret
    program = steps(planned(samples.task(harness=Harness.PROGRAM), secret=True))["test"]
    assert program.env == {"POPCORN_SEED": str(secret)}
    assert 0 <= secret < 2**31
    assert secret != derived_seed(123456, "job 8")


def test_all_finalists_of_a_round_have_the_same_data_and_are_timed_longer_than_public_runs() -> None:
    """Hidden tests, too. Another round, or another final, has another seed."""
    seeds = {}
    for job_id, final_id, round_ in ((1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 2, 1)):
        own = {**vars(samples.job(mode=Mode.FINAL, secret=True)), "id": job_id, "submission_id": None}
        final = FinalJob(**own, validates=job_id, final_id=final_id, round=round_)
        context = replace(samples.context(samples.task(seed=5, hidden=2)), job=final)
        request = judge_request(plan_of(context))
        (test, timed) = request.modes
        assert len(test.cases) == 4
        assert (timed.ranked, timed.timing) == (True, JudgeTiming())
        seeds[job_id] = request.seed
    assert seeds[1] == seeds[2]
    assert len({*seeds.values()}) == 3


def test_only_secret_runs_have_the_hidden_tests() -> None:
    """After the others, and counted; a public run, whatever its mode, is told nothing of them."""
    task = samples.task(hidden=2)
    for secret, sizes in ((False, [10, 11]), (True, [10, 11, 50, 51])):
        for mode in (Mode.LEADERBOARD, Mode.PRIVATE):
            plan = planned(task, mode=mode, secret=secret)
            (test, *timed) = judge_request(plan).modes
            assert [int(line.partition(";")[0].removeprefix("size: ")) for line in test.cases] == sizes
            assert plan.case_counts["test"] == len(sizes)
            assert all("size: 5" not in line for mode_request in timed for line in mode_request.cases)


def test_the_programs_of_a_third_party_task() -> None:
    """A pre-compile run whose failure is ignored, then one program per mode with its own limit and cases file.

    POPCORN_GPUS is set for multi_gpu tasks only.
    """
    plan = planned(samples.task(harness=Harness.PROGRAM))
    programs = steps(plan)
    assert list(programs) == ["compile", "test", "benchmark", "leaderboard"]
    first = programs["compile"]
    assert first.argv == ("/opt/eval/bin/python", "submission.py")
    assert (first.env, first.continue_if, first.result_pipe) == ({"POPCORN_SEED": "1"}, "always", False)
    assert programs["leaderboard"].argv == ("/opt/eval/bin/python", "eval.py", "leaderboard", CASES_FILE)
    assert [programs[name].timeout_s for name in ("test", "benchmark", "leaderboard")] == [11, 22, 33]
    assert programs["test"].files == {CASES_FILE: b"size: 10; seed: 0\nsize: 11; seed: 1\n"}
    assert isinstance(plan.request, StepsRequest)
    assert plan.request.files["submission.py"] == b"x = 1\n"
    slot = replace(samples.SLOT, devices=(_AMD_3,) * 8)
    several_gpus = steps(planned(samples.task(harness=Harness.PROGRAM, multi_gpu=True), slot=slot))["test"].env
    assert (programs["test"].env, several_gpus) == ({}, {"POPCORN_GPUS": "8"})


def several(*sizes: int) -> Task:
    """A task of several devices whose cases for the CPU type have these world sizes."""
    cases = tuple({"size": 1, "world_size": size} for size in sizes)
    extra = Extra(harness=Harness.BUILTIN, cases={"CPU": CaseSet(tests=cases, benchmarks=cases[:1])})
    return replace(samples.task(multi_gpu=True), extra=extra)


def test_a_multi_gpu_task_has_a_rank_for_each_device() -> None:
    """Judge and init are told the cases' world size; any other task has no ranks and no loopback."""
    plan = planned(several(2, 2))
    assert judge_request(plan).ranks == 2
    assert isinstance(plan.request, PairRequest)
    assert (plan.request.ranks, plan.request.to_message()["ranks"]) == (2, 2)
    single = planned(samples.task())
    assert judge_request(single).ranks is None
    assert isinstance(single.request, PairRequest)
    assert single.request.ranks is None
    assert (plan.spec.boot.loopback, single.spec.boot.loopback) == (True, False)


@pytest.mark.parametrize(
    ("sizes", "place", "words"),
    [
        ((2, 3), {}, "have world_size 2, 3, expected one number for all"),
        ((64,), {}, "have world_size 64, but slot cpu0 has room for"),
        # With devices there is one for each rank, whatever the memory.
        (
            (2,),
            {"gpu": replace(samples.MI300, name="CPU"), "slot": _ONE_AMD},
            "world_size 2, but slot amd0 has 1 devices",
        ),
    ],
)
def test_ranks_that_differ_or_do_not_fit_are_refused(sizes: tuple[int, ...], place: dict[str, Any], words: str) -> None:
    """A case that needs more than the slot has is found before anything is started."""
    with pytest.raises(TaskError, match=words):
        planned(several(*sizes), **place)


def test_cuda_sources_are_compiled_for_the_type_and_removed_before_they_run() -> None:
    """The type's architecture, the task's includes and defines; not its compile flags, which KernelBot ignores."""
    programs = steps(planned(samples.cu_task(), gpu=samples.H100))
    assert list(programs) == ["nvcc-version", "compile", "test", "benchmark", "leaderboard"]
    argv = programs["compile"].argv
    assert "-gencode=arch=compute_90a,code=sm_90a" in argv
    assert {"-Iinc", "-DN=4", "eval.cu", "--std=c++20", "-O3"} <= set(argv)
    assert "--ignored" not in argv
    assert set(programs["compile"].remove_after) == {"eval.cu", "submission.cuh", "util.h"}
    assert programs["test"].argv == ("./eval.out", "test", CASES_FILE)


def test_under_the_builtin_harness_nvcc_makes_a_library_for_the_worker() -> None:
    """Found in the archive if it was built ahead, else compiled by the worker; the reference is the judge's alone."""
    task = samples.cu_task()
    task = replace(task, files={**task.files, "reference.py": "ref"}, extra=Extra(harness=Harness.BUILTIN))
    plan = planned(task, gpu=samples.H100)
    assert plan.built_request is not None
    assert plan.spec.boot.kind == "pair"
    for built, request in enumerate(map(judge_request, (plan, replace(plan, request=plan.built_request)))):
        assert request.compiled is not None
        assert request.compiled.program == "eval.out"
        assert bool(request.compiled.argv) is not bool(built)
        assert set(request.compiled.argv) >= (set() if built else {"nvcc", "-shared", "-Xcompiler=-fPIC", "eval.cu"})
        assert set(request.worker_files) == {"eval.cu", "util.h"}
    with pytest.raises(TaskError, match="vendor of MI300 is amd"):
        planned(task, gpu=samples.MI300)


def test_which_cases_are_sent() -> None:
    """Those that runner.yml has for the GPU type, in place of the task's: it gives small devices small cases.

    KernelBot sends one line for benchmark and leaderboard when only the last counts; profile sees them all.
    """
    extra = Extra(harness=Harness.BUILTIN, cases={"CPU": CaseSet(tests=({"size": 1},))})
    test, benchmarks = judge_request(planned(replace(samples.task(), extra=extra))).modes
    assert (test.cases, len(benchmarks.cases)) == (("size: 1",), 2)
    task = samples.task(ranking_by=Ranking.LAST, benchmarks=3)
    assert [mode.cases for mode in judge_request(planned(task)).modes[1:]] == [("size: 102; seed: 2",)]
    assert len(planned(task, mode=Mode.PROFILE).run_names) == 3


@pytest.mark.parametrize(
    ("driver", "cdi", "expected"),
    [
        (DeviceDriver.NODES, {"nvidia.com/gpu=0": _NODES}, (DeviceDriver.CDI, ("nvidia.com/gpu=0",), _NODES)),
        (DeviceDriver.NODES, {"nvidia.com/gpu=GPU-0": ()}, (DeviceDriver.CDI, ("nvidia.com/gpu=GPU-0",), ())),
        (DeviceDriver.NVIDIA, {"nvidia.com/gpu=1": ("/dev/nvidia1",)}, (DeviceDriver.NVIDIA, ("GPU-0",), ())),
        (DeviceDriver.NVIDIA, {}, (DeviceDriver.NVIDIA, ("GPU-0",), ())),
        (DeviceDriver.NODES, {}, (DeviceDriver.NODES, _NODES, ())),
    ],
)
def test_devices_are_asked_for_by_the_engines_driver(
    driver: DeviceDriver, cdi: dict[str, tuple[str, ...]], expected: tuple[object, ...]
) -> None:
    """By CDI where the engine has a name for it, else by UUID through NVIDIA's runtime or by node; memory near it."""
    slot = replace(samples.SLOT, devices=(replace(_NVIDIA_0, groups=(44,)),), numa_node=1)
    environment = replace(samples.ENVIRONMENT, device_driver=driver, cdi=cdi)
    spec = plan_of(samples.context(gpu=samples.H100, slot=slot, environment=environment)).spec
    assert spec.devices is not None
    assert (spec.devices.driver, spec.devices.ids, spec.devices.nodes) == expected
    assert (spec.devices.groups, spec.limits.mems) == ((44,), (1,))


@pytest.mark.parametrize(
    ("device", "offered", "name"),
    [
        pytest.param(_NVIDIA_0, {"GPU-0": [0], "0": [0]}, "GPU-0", id="by-uuid"),
        pytest.param(_NVIDIA_0, {"0": [0], "1": [1], "all": [0, 1]}, "0", id="by-index-as-old-toolkits-do"),
        pytest.param(_NVIDIA_0, {"0": [1], "1": [0]}, "1", id="the-node-tells-not-the-index"),
        pytest.param(_NVIDIA_0, {"GPU-0": [1], "0": [1]}, None, id="a-spec-from-before-the-last-boot"),
        pytest.param(_NVIDIA_0, {"0": [], "all": []}, None, id="a-spec-that-is-not-readable"),
        pytest.param(replace(_NVIDIA_0, partition="1g.10gb"), {"0": [0]}, None, id="an-instance-is-no-whole-device"),
        pytest.param(replace(_NVIDIA_0, partition="1g.10gb"), {"0": [0], "GPU-0": [0]}, "GPU-0", id="an-instance"),
        pytest.param(_AMD_3, {"0": [128], "1": [131], "all": [128, 131]}, "1", id="amd-numbers-of-its-own"),
        pytest.param(_AMD_3, {"0": [130, 131]}, None, id="amd-partitions-of-one-device-together"),
        pytest.param(replace(_AMD_3, nodes=("/dev/kfd",)), {"0": []}, None, id="amd-without-a-render-node"),
        pytest.param(_AMD_3, {}, None, id="none"),
    ],
)
def test_a_device_is_asked_for_by_the_cdi_name_that_is_its_own(
    device: Device, offered: dict[str, list[int]], name: str | None
) -> None:
    """No other device's name, and no name of several devices. AMD's specs have numbers only, and no UUIDs."""
    kind, node = ("nvidia.com/gpu", "/dev/nvidia") if device.vendor == "nvidia" else ("amd.com/gpu", "/dev/dri/renderD")
    names = {f"{kind}={key}": tuple(f"{node}{number}" for number in numbers) for key, numbers in offered.items()}
    assert cdi_name(device, names) == (None if name is None else f"{kind}={name}")


def test_judge_and_worker_keep_what_their_compilers_make_where_only_they_can_write() -> None:
    """A reference compiles, too, under a uid that cannot write below /work; the worker could plant code there."""
    variables = ("TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
    boot = Boot(kind="pair", judge=("j",), worker=("w",))
    spec = make_spec(samples.context(gpu=samples.H100), boot, wall_s=1, labels={})
    parsed = parse_boot(boot_document(spec))
    for name in variables:
        assert parsed.worker_environment({})[name].startswith("/work/.cache/")
        assert parsed.judge_environment({})[name] == parsed.worker_environment({})[name].replace("/work", "/judge")
    (judges,) = [fs for fs in spec.tmpfs if fs.target == "/judge"]
    assert (judges.owner, judges.mode) == (Owner.JUDGE, 0o700)
    assert parsed.judge_environment({})["PATH"] == spec.environment["PATH"]


def test_the_wall_limit_lies_outside_the_programs_own_limits() -> None:
    """An outer limit shorter than the inner ones would lose results.

    `max_run_s` bounds one evaluation whatever the task allows, and never lengthens it; `build_timeout_s` bounds the
    first import under either harness, and nvcc.
    """
    pair = planned(samples.task())
    assert pair.spec.limits.wall_s > judge_request(pair).build_timeout_s + 11 + 22 + 33
    assert planned(samples.task(harness=Harness.PROGRAM)).spec.limits.wall_s > 120 + 11 + 22 + 33
    assert planned(samples.task(), max_run_s=5).spec.limits.wall_s == 5
    assert planned(samples.task(), max_run_s=1e6).spec.limits.wall_s < 1000
    assert judge_request(planned(samples.task(), build_timeout_s=7)).build_timeout_s == 7
    for task in (samples.task(harness=Harness.PROGRAM), samples.cu_task()):
        assert steps(planned(task, gpu=samples.H100, build_timeout_s=7))["compile"].timeout_s == 7


def test_the_container_inherits_no_environment_and_knows_its_job() -> None:
    """Every variable is listed; labels name job, attempt and submission."""
    spec = planned(samples.task()).spec
    assert set(spec.environment) == {
        *("HOME", "TMPDIR", "USER", "LOGNAME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"),
        *("TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"),
        *("TORCHINDUCTOR_VEC_ISA_OK", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "CUDA_MPS_PIPE_DIRECTORY"),
    }
    assert spec.environment["CUDA_MPS_PIPE_DIRECTORY"] == "/nonexistent"
    assert spec.labels == {
        "kernel-runner.slot": "cpu0",
        "kernel-runner.job": "7",
        "kernel-runner.attempt": "2",
        "kernel-runner.submission": "3",
    }
    assert spec.limits.cpus == (0, 1)


@pytest.mark.parametrize(
    ("task", "mode", "words"),
    [
        (samples.task(tests=0), Mode.TEST, "needs tests"),
        (samples.task(benchmarks=0), Mode.BENCHMARK, "needs benchmarks"),
        (samples.task(benchmarks=0), Mode.PROFILE, "needs benchmarks"),
        (samples.task(harness=Harness.PROGRAM, extra_files={"own.py": HARNESS}), Mode.TEST, "files.own.py"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_with_a_sentence(task: Task, mode: Mode, words: str) -> None:
    """A task that lacks what the mode needs is no reason to start a container."""
    with pytest.raises(TaskError, match=words):
        planned(task, mode=mode)


def test_public_and_secret_run_share_a_container_on_a_cpu_alone() -> None:
    """Under the judge, with one rank, on no device, not under gVisor; no other mode, and no run that has failed."""

    def owners(task: Task | None = None, *, place: Any = None, **job: Any) -> tuple[Any, Any]:  # noqa: ANN401 fields
        plan = plan_of(samples.context(task, job=samples.job(**job), **(place or {})))
        return plan.kept_for, plan.follows

    mine = ("submission", samples.job().submission)
    assert owners() == (mine, None)
    assert owners(failures=1) == (mine, None)
    assert owners(secret=True) == (None, mine)
    assert owners(secret=True, failures=1) == (None, None)
    nobody = (None, None)
    assert owners(mode=Mode.TEST) == owners(mode=Mode.BENCHMARK) == owners(mode=Mode.PRIVATE, secret=True) == nobody
    device = Device(uuid="u", name="NVIDIA H100 PCIe", vendor="nvidia", index=0)
    for secret in (False, True):
        assert owners(samples.task(harness=Harness.PROGRAM), secret=secret) == nobody
        assert owners(place={"slot": replace(samples.SLOT, devices=(device,))}, secret=secret) == nobody
        assert owners(place={"gpu": replace(samples.CPU, runtime="runsc")}, secret=secret) == nobody


def test_the_probe_asks_for_facts_and_holds_no_submission() -> None:
    """The daemon's own container at start-up runs no mode."""
    plan = make_probe(samples.PLACE)
    request = judge_request(plan)
    assert (request.modes, request.submission, plan.run_names) == ((), "", ("facts",))


def lit(**work: str) -> Task:
    """A task whose cases have this work."""
    made = samples.task()
    return replace(made, extra=replace(made.extra, **work))  # type: ignore[arg-type]  # of texts only


def test_the_judge_gets_a_floor_for_every_case_that_is_timed() -> None:
    """Benchmark and leaderboard have them, from the slot's own device; tests have none; `last` has the last case's.

    The CPU type has no peaks, a task without expressions no work.
    """
    slot = replace(samples.SLOT, devices=(Device(uuid="u", name="NVIDIA H100 PCIe", vendor="nvidia", index=0),))
    gpu = Registry.load().get("H100")
    work = lit(flops="1e15 * size")
    plan = planned(work, gpu=gpu, slot=slot)
    test, *timed = judge_request(plan).modes
    assert test.floors == ()
    for mode in timed:
        assert [floor and round(floor.ns) for floor in mode.floors] == [
            round(1e15 * size / 1513e12 / 1.5 * 1e9) for size in (100, 101)
        ]
        assert tuple(light.floor for light in plan.speeds_of_light[mode.name]) == mode.floors
    assert set(plan.speeds_of_light) == {"benchmark", "leaderboard"}
    last = planned(replace(work, ranking_by=Ranking.LAST), gpu=gpu, slot=slot)
    assert judge_request(last).modes[1].floors == timed[0].floors[1:]
    for task in (samples.task(), lit(flops="size", bytes="size")):
        assert judge_request(planned(task)).modes[1].floors == (None, None)


def test_the_judge_gets_the_tasks_rule_for_stopping_and_the_boards_tolerance() -> None:
    """What runner.yml says reaches the modes that are timed, as data, and no other; a silent board asks for a tenth."""
    task = samples.task()
    task = replace(task, extra=replace(task.extra, timing=Timing(max_runs=7, width=0.01)))
    demand = Demand(timing=TimingAssurance.AUDITED, tolerance=0.02)
    strict = judge_request(plan_of(samples.context(task, job=replace(samples.job(), demand=demand))))
    assert [mode.timing for mode in strict.modes] == [None, JudgeTiming(max_runs=7, width=0.01)]
    assert (strict.tolerance, judge_request(planned(task)).tolerance) == (0.02, 0.1)


def test_a_secret_job_has_fewer_calls() -> None:
    """Its times do not rank. A benchmark and a public job take what their mode gives."""
    (secret,) = judge_request(planned(samples.task(), secret=True)).modes[1:]
    assert not secret.ranked
    for mode in (Mode.BENCHMARK, Mode.LEADERBOARD):
        timed = [each for each in judge_request(planned(samples.task(), mode=mode)).modes if each.floors]
        assert [(each.timing, each.ranked) for each in timed] == [(None, True)]
    rules = [Stopping.of(timing, max_kernel_ns=10e9, max_wall_ns=120e9) for timing in (secret.timing, None)]
    assert [(rule.max_runs, rule.max_kernel_ns) for rule in rules] == [(20, 5e9), (100, 10e9)]


@pytest.mark.parametrize("mode", [Mode.LEADERBOARD, Mode.PRIVATE])
def test_a_ranked_job_times_its_cases_once(mode: Mode) -> None:
    """The ranked calls are its benchmark's, too. A task's own program has a run for each, as KernelBot has."""
    plan = planned(samples.task(), mode=mode)
    assert [each.name for each in judge_request(plan).modes] == ["test", "leaderboard"]
    assert plan.shared == {"benchmark": "leaderboard"}
    assert not planned(samples.task(harness=Harness.PROGRAM), mode=mode).shared
    assert not planned(samples.task(), mode=Mode.BENCHMARK).shared


@pytest.mark.parametrize(
    ("gpu", "harness", "gib", "words"),
    [
        ("CPU", Harness.BUILTIN, 4.0, "the 4 GiB of CPU's container"),
        ("CPU", Harness.PROGRAM, 4.0, "the 4 GiB of CPU's container"),
        # Tensors cross in the container's memory, which is less than the device's.
        ("H100", Harness.BUILTIN, 32.0, "the 32 GiB of H100's container"),
        ("H100", Harness.PROGRAM, 80.0, "the 80 GiB of H100's device memory"),
        ("MI300x8", Harness.PROGRAM, 8 * 192.0, "the 8 x 192 GiB of MI300x8's device memory"),
    ],
)
def test_a_case_that_cannot_fit_is_refused(gpu: str, harness: Harness, gib: float, words: str) -> None:
    """Half of `bytes` is held at the least; what is more than the memory there is runs nowhere, and says so."""
    entry = Registry.load().get(gpu)
    assert tensor_bytes(entry, harness) == gib / 2 * (1 << 30)
    made = replace(lit(bytes=f"{gib * 2 * (1 << 30)} + size - 101"), tests=())
    made = replace(made, extra=replace(made.extra, harness=harness))
    assert planned(made, mode=Mode.BENCHMARK, gpu=entry).run_names == ("benchmark",)
    large = replace(made, extra=replace(made.extra, bytes=f"{gib * 2 * (1 << 30)} + size * 1e7"))
    with pytest.raises(TaskError, match=r"leaderboard 'board': case size: 100; seed: 0 has at least .* GiB") as caught:
        planned(large, mode=Mode.BENCHMARK, gpu=entry)
    assert f"more than {words} (give this GPU type smaller cases" in str(caught.value)


def test_a_task_states_what_its_cases_need() -> None:
    """By `memory`, up to all there is, which the judge then allows; more is refused on that type before a run.

    Only benchmarks must have their work.
    """
    gpu = Registry.load().get("CPU")
    for gib in (1, 3):
        plan = planned(lit(memory=f"{gib} * 2 ** 30"), gpu=gpu)
        assert judge_request(plan).memory_bytes == max(gib, 2) << 30
    large = replace(lit(memory="4.5 * 2 ** 30 * size / 100"), tests=())
    with pytest.raises(TaskError) as caught:
        planned(large, mode=Mode.BENCHMARK, gpu=gpu)
    assert str(caught.value) == (
        "leaderboard 'board': case size: 100; seed: 0 needs 4.5 GiB of memory (its `memory`), more than the 4 GiB of "
        "CPU's container (give this GPU type smaller cases in runner.yml, or do not offer the leaderboard on it)"
    )
    assert planned(large, mode=Mode.BENCHMARK, gpu=Registry.load().get("H100")).run_names == ("benchmark",)
    task = replace(lit(bytes="n"), benchmarks=({"n": 5},), tests=({"size": 1},))
    assert planned(task).run_names == ("test", "benchmark", "leaderboard")


EMULATING = replace(samples.CPU, emulate_cuda=True)


@pytest.mark.parametrize("harness", Harness)
def test_a_container_that_emulates_cuda_says_so_to_everything_in_it(harness: Harness) -> None:
    """By its environment: how much memory the device has, and where interpreters find the emulation.

    Tasks that look for a device find it, and times are claims, as on one.
    """
    plain, emulated = (
        planned(samples.task(harness=harness), mode=Mode.TEST, gpu=gpu) for gpu in (samples.CPU, EMULATING)
    )
    assert emulated.spec.environment["KR_EMULATE_CUDA"] == str(4 << 30)
    assert emulated.spec.environment["PYTHONPATH"] == "/kernel-runner/tasks/harness/site"
    assert "KR_EMULATE_CUDA" not in plain.spec.environment
    if harness is Harness.BUILTIN:
        assert [judge_request(plan).device for plan in (plain, emulated)] == ["cpu", "cuda"]


@pytest.mark.parametrize(
    ("task", "mode", "words"),
    [
        # A processor's times are not ranked: such modes are refused before anything runs.
        *(
            (samples.task(harness=harness), mode, "nothing is ranked there")
            for harness in Harness
            for mode in (Mode.LEADERBOARD, Mode.PRIVATE)
        ),
        (samples.task(multi_gpu=True), Mode.TEST, "one device is emulated"),
        (samples.cu_task(), Mode.TEST, "compiled code"),
    ],
)
def test_what_one_emulated_device_cannot_do_is_refused(task: Task, mode: Mode, words: str) -> None:
    """Ranks, several devices, and compiled device code."""
    with pytest.raises(TaskError, match=words):
        planned(task, mode=mode, gpu=EMULATING)


OPTIONS = ProfileOptions(benchmark=1, kernel="regex:a b", kernel_base="mangled", launches=3)


def profiled(task: Task, gpu: GpuType, options: ProfileOptions = OPTIONS) -> Plan:
    """The plan of a profile."""
    return planned(task, mode=Mode.PROFILE, options=options, gpu=gpu)


def test_a_profile_is_of_the_benchmark_that_was_asked_for() -> None:
    """Under its own number; one that the task has no longer is an error of the task."""
    assert profiled(samples.task(), samples.CPU).run_names == ("profile.1",)
    assert profiled(samples.task(), samples.CPU, ProfileOptions()).run_names == ("profile.0", "profile.1")
    with pytest.raises(TaskError, match="there is no benchmark 2 on CPU: it has 2, counted from 0"):
        profiled(samples.task(), samples.CPU, ProfileOptions(benchmark=2))


def test_the_judge_gets_a_capture_where_there_is_a_device() -> None:
    """A real one, for a profile alone; then the container has the loopback, which the profiler needs."""
    on_device = profiled(samples.task(), samples.H100)
    assert judge_request(on_device).capture == Capture(kernel="regex:a b", kernel_base="mangled", launches=3)
    assert on_device.spec.boot.loopback
    others = [profiled(samples.task(), gpu) for gpu in (samples.CPU, EMULATING)]
    others.append(planned(samples.task(), gpu=samples.H100))
    assert [(judge_request(plan).capture, plan.spec.boot.loopback) for plan in others] == [(None, False)] * 3


def test_a_tasks_own_program_is_started_below_nsight_compute() -> None:
    """On NVIDIA's devices; what it leaves comes back."""
    task = samples.task(harness=Harness.PROGRAM)
    plain, below, on_amd = (
        steps(profiled(task, gpu))["profile.1"] for gpu in (samples.CPU, samples.H100, samples.MI300)
    )
    assert below.argv[-len(plain.argv) :] == plain.argv
    *_, name, options = below.argv[: -len(plain.argv)]
    capture = Capture(kernel="regex:a b", kernel_base="mangled", launches=3)
    assert (name, Capture(**json.loads(options))) == ("profile.1", capture)
    assert below.artifacts == tuple(f"profile.1.{suffix}" for suffix in NCU_FILES)
    assert (on_amd.argv, on_amd.artifacts, plain.artifacts) == (plain.argv, (), ())


def test_a_driver_that_starts_threads_ahead_leaves_the_judges_core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the cores of the thread that makes the context; the worker itself leaves the core when it begins."""
    cores, kept = os.sched_getaffinity(0), judge_core()
    seen: list[set[int]] = []
    for name in ("init", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: seen.append(os.sched_getaffinity(0)))
    try:
        exec(pair_boot(samples.ENVIRONMENT).ahead, {})  # noqa: S102 our own
        assert os.sched_getaffinity(0) == cores
    finally:
        os.sched_setaffinity(0, cores)
    assert seen == [cores - {kept}] * 2
