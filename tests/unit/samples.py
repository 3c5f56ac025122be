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
from runner.task_format import extra_to_stored, to_stored
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


NOW = datetime(2026, 1, 2, tzinfo=UTC)
#: Of every job.
_CLAIMED: Mapping[str, Any] = {
    "id": 7, "attempt": 2, "gpu_type": "CPU", "user_id": "u", "failures": 0, "created_at": NOW, "started_at": NOW,
}  # fmt: skip


def job(**changes: Any) -> SubmissionJob:  # noqa: ANN401 its fields
    """A claimed job of user u on leaderboard `board`."""
    own = {"submission_id": 3, "leaderboard": "board", "mode": Mode.LEADERBOARD, "secret": False, "secret_seed": 123456}
    file: dict[str, Any] = {"file_name": "mine.py", "code": b"x = 1\n", "task": {}, "extra": None}
    return SubmissionJob(**{**_CLAIMED, **own, **file, **changes})


def job_on(task: Task, code: bytes | str, **changes: Any) -> SubmissionJob:  # noqa: ANN401 its fields
    """A claimed test job with this code, unless it is to be another one, with its task as the queue stores it."""
    stored = {"task": to_stored(task), "extra": extra_to_stored(task.extra)}
    return job(**{"mode": Mode.TEST, "code": code.encode() if isinstance(code, str) else code, **stored, **changes})


def group(*candidates: Mapping[str, Any], **more: Any) -> GroupJob:  # noqa: ANN401 keys of a group
    """A claimed group with these candidates."""
    task = {"kind": "module", "reference": "r", "candidates": list(candidates), **more}
    return GroupJob(**_CLAIMED, submission_id=None, mode=Mode.BENCHMARK, secret=False, batch_id=7, task=task)


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


def outcome(**changes: Any) -> Outcome:  # noqa: ANN401 its fields
    """How a container ended."""
    counts: dict[str, Any] = {"oom_kills": 0, "pids_denied": 0, "peak_memory_bytes": 1 << 20}
    times = {"cpu_ns": 1_000_000, "wall_ns": 5_000_000_000}
    return Outcome(**{"ending": Ending.COMPLETED, "exit_code": 0, **counts, **times, **changes})


def timing(mean_ns: float, *, assurance: str = "audited", interval: tuple[float, float] | None = None) -> TimingReport:
    """What the judge reports of a case that took the same time 20 times."""
    return TimingReport(
        summary=summarise([mean_ns] * 20), mean_ci95=(mean_ns, mean_ns), outliers=0.0, drift=None, drift_p=None,
        stopped="interval", noisy=None, assurance=assurance, interval=interval, host=None,
    )  # fmt: skip


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


def step(name: str, result: Mapping[str, str], **changes: Any) -> StepResult:  # noqa: ANN401 its fields
    """A finished step that took one second."""
    ended: dict[str, Any] = {"exit_code": 0, "signal": None, "timed_out": False, "output_limit": False}
    said = {"stdout": "", "stderr": "", "judged": None}
    times = {"start_ns": 10, "duration_ns": 1_000_000_000}
    command = f"python eval.py {name} cases.txt"
    return StepResult(name=name, command=command, result=result, **{**ended, **said, **times, **changes})
