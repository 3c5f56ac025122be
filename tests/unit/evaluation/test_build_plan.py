"""What is built before it has a device, and what the container that does it gets to see."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runner.base.gpu_types.model import GpuType, Vendor
from runner.base.model import Mode, SubmissionJob, Verdict
from runner.evaluation.build_plan import BuildPlan, compiles, make_build_plan, should_build
from runner.evaluation.container_spec import CACHES
from runner.evaluation.context import SubmissionContext
from runner.evaluation.plan import Plan
from runner.evaluation.result_rows import Evidence
from runner.task_format.model import Extra, Harness, Task
from sandbox.protocol import StepResult, StepsRequest
from sandbox.spec import Ending
from tests.unit import samples

CPUS = (6, 7)


def build(task: Task, job: SubmissionJob | None = None, gpu: GpuType = samples.CPU) -> BuildPlan:
    """The build of a job."""
    context = samples.context(task, job=job or samples.job(), gpu=gpu, build_timeout_s=9)
    return make_build_plan(context, cpus=CPUS)


def context_of(task: Task, gpu: GpuType = samples.CPU) -> SubmissionContext:
    """The context of a test job."""
    return samples.context(task, job=samples.job(mode=Mode.TEST), gpu=gpu)


def run(task: Task, gpu: GpuType = samples.CPU) -> Plan:
    """The run of a test job."""
    return samples.submission(context_of(task, gpu)).plan


@pytest.mark.parametrize(
    ("code", "worth"),
    [
        ("from torch.utils.cpp_extension import load", True),
        ("module = load_inline(name='x', cuda_sources=source)", True),
        ("triton.compile(source, target=target)", True),
        ("kernel.warmup(1, grid=(1,))", True),
        ("torch._inductor.aoti_compile_and_package(program)", True),
        ("@triton.jit\ndef kernel(x): pass", False),
        ("@torch.compile\ndef custom_kernel(data): return data", False),
        ("import torch", False),
    ],
)
def test_python_is_built_if_it_compiles_something_when_it_is_imported(code: str, *, worth: bool) -> None:
    """What is compiled at the first call, with inputs and on the device, is not.

    Candidates of KernelBook's form only name helpers of the compiler, and compile at their first call.
    """
    assert should_build(code.encode(), samples.task(), samples.CPU) == worth
    assert compiles(b"module = load_inline(name='x', cuda_sources=source)")
    assert not compiles(b"from torch._inductor.runtime.triton_heuristics import grid\n@triton.jit\ndef kernel(x): pass")


def test_lang_cu_is_built_where_the_architecture_is_known() -> None:
    """`-arch=native` asks the device."""
    types = (samples.CPU, samples.H100, GpuType(name="Any", vendor=Vendor.NVIDIA))
    assert [should_build(b"", samples.cu_task(), gpu) for gpu in types] == [True, True, False]


def test_a_builtin_build_sees_nothing_of_the_judges() -> None:
    """No case, no seed, no reference, no private file; the submission and what its worker would have."""
    task = samples.task(extra_files={"hidden.py": "private", "helper.py": "shared"}, private=("hidden.py",), seed=4711)
    plan = build(task, samples.job(secret=True, code=b"the code"))
    assert dict(plan.request.files) == {"task.py": b"types", "helper.py": b"shared", "submission.py": b"the code"}
    (step,) = plan.request.steps
    assert step.argv[-1] == "submission.py"
    assert (step.timeout_s, step.result_pipe, dict(step.files)) == (9, False, {})
    said = json.dumps([plan.request.to_message(), [*plan.spec.environment.items()], plan.spec.boot.kind])
    assert "123456" not in said, "the board's secret seed"
    assert "4711" not in said


@pytest.mark.parametrize("gpu", [samples.CPU, samples.H100], ids=["cpu", "gpu"])
def test_a_build_has_the_runs_container_but_for_device_cores_and_judge(gpu: GpuType) -> None:
    """Same root, same paths, same limits, same environment: or what is built would be built again."""
    built, ran = build(samples.task(), gpu=gpu).spec, run(samples.task(), gpu).spec
    assert (built.devices, built.limits.cpus, built.limits.mems) == (None, CPUS, None)
    assert built.environment == ran.environment
    assert (built.image, built.binds, built.runtime) == (ran.image, ran.binds, ran.runtime)
    assert built.tmpfs == tuple(fs for fs in ran.tmpfs if fs.target != "/judge")
    assert (built.limits.memory_bytes, built.limits.pids) == (ran.limits.memory_bytes, ran.limits.pids)
    assert built.labels["kernel-runner.build"] == "3"


def test_caches_are_below_work_and_come_back() -> None:
    """Torch, Triton and inductor are told where, and that is what is kept."""
    plan = build(samples.task())
    assert {plan.spec.environment[variable] for variable in CACHES} == {f"/work/{name}" for name in plan.request.keep}


@pytest.mark.parametrize(("arch", "torch"), [("90a", "9.0a"), ("80", "8.0"), ("100a", "10.0a")])
def test_torch_is_told_what_to_build_for(arch: str, torch: str) -> None:
    """It would ask the device; an operator's own word wins."""
    gpu = replace(samples.H100, nvcc_arch=arch)
    assert build(samples.task(), gpu=gpu).spec.environment["TORCH_CUDA_ARCH_LIST"] == torch
    gpu = replace(gpu, environment={"TORCH_CUDA_ARCH_LIST": "7.5"})
    assert run(samples.task(), gpu).spec.environment["TORCH_CUDA_ARCH_LIST"] == "7.5"
    assert "TORCH_CUDA_ARCH_LIST" not in run(samples.task()).spec.environment


def test_nvcc_runs_in_the_build_or_in_the_run_and_never_in_both() -> None:
    """With the same arguments; what was built goes in without its sources.

    A Python program is imported in the run all the same: the build has no device, so its import may have been another.
    """
    task = samples.cu_task()
    plan, ahead = run(task), build(task).request
    plain, built = plan.request, plan.built_request
    assert isinstance(plain, StepsRequest)
    assert isinstance(built, StepsRequest)
    assert [step.name for step in plain.steps] == ["nvcc-version", "compile", "test"]
    assert [step.argv for step in ahead.steps] == [step.argv for step in plain.steps[:2]]
    assert ([step.name for step in built.steps], dict(built.files)) == (["test"], {})
    assert (ahead.keep, ahead.files) == (("eval.out",), plain.files)
    assert run(samples.task(harness=Harness.PROGRAM)).built_request is None


def test_a_library_for_the_worker_is_built_without_the_reference() -> None:
    """Lang cu under the built-in harness: nvcc's steps, and only what the submission may see."""
    task = samples.cu_task()
    task = replace(task, files={**task.files, "reference.py": "ref"}, extra=Extra(harness=Harness.BUILTIN))
    request = build(task, samples.job(code=b"the code")).request
    assert set(request.files) == {"eval.cu", "util.h", "submission.cuh"}
    assert [step.name for step in request.steps] == ["nvcc-version", "compile"]
    assert "-shared" in request.steps[1].argv
    assert request.keep == ("eval.out",)


def evidence(*compiled: StepResult, ending: Ending = Ending.COMPLETED, oom_kills: int = 0) -> Evidence:
    """What the container that builds left to judge."""
    return Evidence(
        steps=(),
        artifacts=(),
        ok=True if ending is Ending.COMPLETED else None,
        message=None,
        outcome=samples.outcome(ending=ending, oom_kills=oom_kills),
        request_offset_ns=0,
        system={},
        runner={},
        compiled=compiled,
    )


VERSION = samples.step("nvcc-version", {}, stdout="release 13")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (evidence(VERSION, samples.step("compile", {}, exit_code=1, stderr="x: error: y")), Verdict.COMPILE_ERROR),
        (evidence(VERSION, samples.step("compile", {}, exit_code=None, timed_out=True)), Verdict.COMPILE_ERROR),
        (evidence(VERSION, ending=Ending.DIED, oom_kills=1), Verdict.MEMORY_LIMIT),
        (evidence(VERSION, samples.step("compile", {})), None),
        (evidence(samples.step("nvcc-version", {}, exit_code=127)), None),
        (evidence(VERSION, ending=Ending.DIED), None),
        (evidence(VERSION, samples.step("compile", {}, exit_code=1), ending=Ending.BAD_REPORT), None),
    ],
    ids=["error", "too-long", "memory", "fine", "no-nvcc", "died", "nonsense"],
)
def test_only_what_the_compiler_itself_says_is_a_verdict(found: Evidence, verdict: Verdict | None) -> None:
    """What our side broke, the run finds out again. A Python build has none, however its import ended."""
    result = samples.submission(context_of(samples.cu_task())).compile_failure(found)
    assert (None if result is None else result.verdict) == verdict
    assert result is None or result.runs == ()
    python = evidence(samples.step("compile", {}, exit_code=1, stderr="ImportError"))
    for harness in Harness:
        assert samples.submission(context_of(samples.task(harness=harness))).compile_failure(python) is None


def test_rows_tell_of_the_compilation_wherever_it_was() -> None:
    """KernelBot's readers find nvcc's facts with a run that had no compiler in it."""
    task = samples.cu_task()
    found = replace(
        evidence(VERSION, samples.step("compile", {}, stderr="remark")),
        steps=(samples.step("test", {"test-count": "1", "test.0.status": "pass", "check": "pass"}),),
    )
    result = samples.submission(context_of(task)).judge(found)
    assert result.verdict is Verdict.ACCEPTED
    compilation = result.runs[0].compilation
    assert compilation is not None
    assert (compilation["stderr"], compilation["nvcc_version"]) == ("remark", "release 13")
