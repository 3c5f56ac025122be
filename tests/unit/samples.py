"""Records that several unit tests start from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from runner.base.gpu_types.model import GpuType, Vendor
from runner.base.model import GroupJob, Mode, Slot, SubmissionJob
from runner.evaluation.context import Environment, Place, SubmissionContext
from runner.evaluation.kinds.kernel import Kernel
from runner.evaluation.kinds.program import Program
from runner.task_format.model import SUBMISSION, CuConfig, Extra, Harness, Lang, PyConfig, Ranking, Task
from sandbox.protocol import Judged, StepResult
from sandbox.spec import Ending, Outcome
from tasks.harness.judge.report import CaseReport, TimingReport
from tasks.harness.judge.stats import summarise

CPU = GpuType(name="CPU", vendor=Vendor.NONE)
H100 = GpuType(name="H100", vendor=Vendor.NVIDIA, nvcc_arch="90a")
MI300 = GpuType(name="MI300", vendor=Vendor.AMD)
SLOT = Slot(name="cpu0", gpu_type="CPU", devices=(), cpus=(0, 1))
ENVIRONMENT = Environment(image="sha256:abc", python="/opt/eval/bin/python", binds=())
PLACE = Place(gpu=CPU, slot=SLOT, environment=ENVIRONMENT)


def job(
    *, mode: Mode = Mode.LEADERBOARD, secret: bool = False, gpu_type: str = "CPU", code: bytes = b"x = 1\n"
) -> SubmissionJob:
    """A claimed job of user u on leaderboard `board`."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    return SubmissionJob(
        id=7,
        attempt=2,
        submission_id=3,
        leaderboard="board",
        gpu_type=gpu_type,
        mode=mode,
        secret=secret,
        user_id="u",
        file_name="mine.py",
        code=code,
        task={},
        extra=None,
        secret_seed=123456,
        failures=0,
        created_at=now,
        started_at=now,
    )


def group(*candidates: Mapping[str, Any], **more: Any) -> GroupJob:  # noqa: ANN401 keys of a group
    """A claimed group with these candidates."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    return GroupJob(
        id=7,
        attempt=2,
        submission_id=None,
        gpu_type="CPU",
        mode=Mode.BENCHMARK,
        secret=False,
        user_id="u",
        task={"kind": "module", "reference": "r", "candidates": list(candidates), **more},
        failures=0,
        created_at=now,
        started_at=now,
        batch_id=7,
    )


def context(made: Task | None = None, **changes: Any) -> SubmissionContext:  # noqa: ANN401 its fields
    """The context of a job on the CPU type."""
    facts: dict[str, Any] = {"job": job(), "task": made or task(), **vars(PLACE)}
    return SubmissionContext(**{**facts, **changes})


def submission(context: SubmissionContext) -> Kernel | Program:
    """A job that has been planned."""
    return Kernel(context) if context.task.harness is Harness.BUILTIN else Program(context)


def task(
    *,
    harness: Harness = Harness.BUILTIN,
    ranking_by: Ranking = Ranking.GEOM,
    tests: int = 2,
    benchmarks: int = 2,
    seed: int | None = None,
    multi_gpu: bool = False,
    extra_files: Mapping[str, str] | None = None,
    private: tuple[str, ...] = (),
    hidden: int = 0,
) -> Task:
    """A Python task with numbered cases."""
    return Task(
        files={
            "submission.py": SUBMISSION,
            "reference.py": "reference",
            "task.py": "types",
            "eval.py": "program",
            **(extra_files or {}),
        },
        lang=Lang.PY,
        config=PyConfig(main="eval.py"),
        tests=tuple({"size": 10 + index, "seed": index} for index in range(tests)),
        benchmarks=tuple({"size": 100 + index, "seed": index} for index in range(benchmarks)),
        test_timeout_s=11,
        benchmark_timeout_s=22,
        ranked_timeout_s=33,
        ranking_by=ranking_by,
        seed=seed,
        multi_gpu=multi_gpu,
        extra=Extra(
            harness=harness,
            private=private,
            hidden=tuple({"size": 50 + index, "seed": index} for index in range(hidden)),
        ),
    )


def cu_task() -> Task:
    """A CUDA C++ task with two sources and a header."""
    return Task(
        files={"eval.cu": "main", "submission.cuh": SUBMISSION, "util.h": "header"},
        lang=Lang.CU,
        config=CuConfig(sources=("eval.cu",), include_dirs=("inc",), defines={"N": "4"}, compile_flags=("--ignored",)),
        tests=({"size": 1},),
        benchmarks=({"size": 2},),
    )


def outcome(
    *,
    ending: Ending = Ending.COMPLETED,
    oom_kills: int | None = 0,
    pids_denied: int | None = 0,
    wall_ns: int = 5_000_000_000,
) -> Outcome:
    """How a container ended."""
    return Outcome(
        ending=ending,
        exit_code=0,
        oom_kills=oom_kills,
        pids_denied=pids_denied,
        peak_memory_bytes=1 << 20,
        cpu_ns=1_000_000,
        wall_ns=wall_ns,
    )


def timing(mean_ns: float, *, assurance: str = "audited", interval: tuple[float, float] | None = None) -> TimingReport:
    """What the judge reports of a case that took the same time 20 times."""
    return TimingReport(
        summary=summarise([mean_ns] * 20),
        mean_ci95=(mean_ns, mean_ns),
        outliers=0.0,
        drift=None,
        drift_p=None,
        stopped="interval",
        noisy=None,
        assurance=assurance,
        interval=interval,
        host=None,
    )


def judged(
    *cases: CaseReport,
    verdict: str = "accepted",
    message: str | None = None,
    timing: str = "audited",
    announced: int | None = None,
    details: Mapping[str, object] | None = None,
) -> Judged:
    """The judge's word on a mode; it announces as many cases as it reports unless told otherwise."""
    return Judged(
        verdict=verdict,
        message=message,
        assurance={"correctness": "judge", "timing": timing},
        details=details or {},
        announced=len(cases) if announced is None else announced,
        cases=tuple(case.to_message() for case in cases),
    )


def step(
    name: str,
    result: Mapping[str, str],
    *,
    exit_code: int | None = 0,
    signal: int | None = None,
    timed_out: bool = False,
    output_limit: bool = False,
    stdout: str = "",
    stderr: str = "",
    judged: Judged | None = None,
    duration_ns: int = 1_000_000_000,
) -> StepResult:
    """A finished step that took one second."""
    return StepResult(
        name=name,
        command=f"python eval.py {name} cases.txt",
        start_ns=10,
        duration_ns=duration_ns,
        exit_code=exit_code,
        signal=signal,
        timed_out=timed_out,
        output_limit=output_limit,
        stdout=stdout,
        stderr=stderr,
        result=result,
        judged=judged,
    )
