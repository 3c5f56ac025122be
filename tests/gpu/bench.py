"""What the tests of this folder do with a device: find out what it is, judge files of the tasks on it, tell the times.

Standard library, torch and the harness alone: it runs where nothing else is installed. What tasks and GPU types say
stands in `manifest.json` (see `manifest`). The same code judges on the CPU, where unit tests run it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch

from sandbox.protocol import StepResult
from tasks.harness import local
from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.local import lines_of
from tasks.harness.shared.profilers import Capture
from tests.gpu.recording import keep, start

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = Path(__file__).parent / "manifest.json"
#: The reference as a submission: nobody else may see it, here it is to be timed like everybody else.
REFERENCE = "from reference import ref_kernel as custom_kernel\n"
_BUILD_TIMEOUT_S = 600.0
#: What a language of templates needs: a sentence, if this machine has it not.
_PYTHON_PACKAGES = {"Triton": "triton", "CuteDSL": "cutlass"}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task of the manifest."""

    name: str
    #: Name -> path below the repository, of what the judge gets.
    files: Mapping[str, str]
    worker_files: Sequence[str]
    submission_name: str
    seed: int | None
    timeouts_s: Mapping[str, float]
    #: GPU types it is offered on.
    gpus: Sequence[str]
    #: Language -> path.
    templates: Mapping[str, str]
    #: How many ranks its cases have; None for one device.
    ranks: int | None
    small_ranks: int | None
    tests: Sequence[str]
    benchmarks: Sequence[str]
    #: Those of the CPU type.
    small_tests: Sequence[str]
    small_benchmarks: Sequence[str]
    #: Bytes that each benchmark moves.
    bytes: Sequence[float | None]
    #: Kind of device -> for each benchmark nanoseconds and limit of a perfect kernel.
    lights: Mapping[str, Sequence[tuple[float, str] | None]]

    def solutions(self, kind: str) -> Sequence[Path]:
        """The files in solutions/correct or solutions/wrong."""
        return sorted((ROOT / "tasks" / "problems" / self.name / "solutions" / kind).glob("*.py"))

    @property
    def right(self) -> Sequence[Path]:
        """Right submissions that run wherever torch does."""
        return [ROOT / self.templates["Python"], *self.solutions("correct")]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A file of a task, and what must become of it."""

    task: Task
    #: correct, wrong, or the language of a template
    kind: str
    path: Path

    def __str__(self) -> str:
        return f"{self.task.name}-{self.kind}-{self.path.stem}"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where things are run."""

    #: What the harness is told: cuda (also for ROCm), or cpu.
    device: str
    #: The driver's name of the first device, and how many there are.
    name: str
    count: int
    #: What a case's tensors may take, in judge and workers together.
    memory_bytes: int

    @classmethod
    def here(cls) -> Machine:
        """This machine; half of what device and host both have, for tensors."""
        host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if not torch.cuda.is_available():
            return cls(device="cpu", name="CPU", count=0, memory_bytes=host // 4)
        device = torch.cuda.get_device_properties(0).total_memory
        return cls(
            device="cuda",
            name=torch.cuda.get_device_name(0),
            count=torch.cuda.device_count(),
            memory_bytes=min(host, device) // 2,
        )

    def variant(self, ranks: int | None) -> str | None:
        """Whose figures count here for a task of so many ranks; None where nobody has stated any."""
        for entry in _manifest()["variants"]:
            named = any(re.fullmatch(pattern, self.name) for pattern in entry["device_names"])
            if named and entry["count"] == (ranks or 1):
                return str(entry["variant"])
        return None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the judge said to a file: the first thing that was not accepted, or `accepted`."""

    verdict: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One benchmark case of one task: what a perfect kernel and the best solution take."""

    spec: str
    light: tuple[float, str] | None
    #: None where none was accepted.
    best_ns: float | None


def software() -> str:
    """The platform and the version of torch, as GPU types state them."""
    platform = f"CUDA {torch.version.cuda}, " if torch.version.cuda else ""
    platform = f"ROCm {torch.version.hip}, " if torch.version.hip else platform
    return f"{platform}torch {torch.__version__.partition('+')[0]}"


@cache
def _manifest() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(MANIFEST.read_text(encoding="utf-8"))
    return found


def task_of(name: str) -> Task:
    """The task of a name."""
    return next(task for task in tasks() if task.name == name)


@cache
def tasks() -> Sequence[Task]:
    """All tasks."""
    return [
        Task(**{**entry, "lights": {key: [_light(item) for item in items] for key, items in entry["lights"].items()}})
        for entry in _manifest()["tasks"]
    ]


def _light(found: Sequence[Any] | None) -> tuple[float, str] | None:
    return None if found is None else (float(found[0]), str(found[1]))


def trials() -> Iterator[Trial]:
    """Every solution and every template of every task."""
    for task in tasks():
        for kind in ("correct", "wrong"):
            for path in task.solutions(kind):
                yield Trial(task=task, kind=kind, path=path)
        for language, source in task.templates.items():
            yield Trial(task=task, kind=language, path=ROOT / source)


def lacking(trial: Trial, machine: Machine) -> str | None:
    """Why a trial cannot be made here, if it cannot."""
    ranks = trial.task.small_ranks
    if ranks is not None and machine.device != "cpu" and machine.count < ranks:
        return f"needs {ranks} devices, there are {machine.count}"
    package = _PYTHON_PACKAGES.get(trial.kind)
    if package is not None and find_spec(package) is None:
        return f"needs the package {package}, which is not installed"
    if trial.kind in ("CUDA", "CuteDSL") and not torch.version.cuda:
        return "needs torch for CUDA"
    if trial.kind == "CUDA" and shutil.which("nvcc") is None:
        return "needs nvcc, which is not on PATH"
    if trial.kind == "HIP" and not torch.version.hip:
        return "needs torch for ROCm"
    return None


def too_large(task: Task, machine: Machine) -> str | None:
    """Why a task's official cases cannot be timed here, if they cannot."""
    if task.ranks is not None and machine.count < task.ranks:
        return f"needs {task.ranks} devices, there are {machine.count}"
    largest = max((moved for moved in task.bytes if moved is not None), default=0.0)
    # Inputs twice, output three times: `bytes` counts each once.
    if 2 * largest > machine.memory_bytes:
        return f"moves {largest / 2**30:.1f} GiB, its tensors may take {machine.memory_bytes / 2**30:.1f} GiB"
    return None


def request_for(
    task: Task,
    code: str,
    modes: Mapping[str, Sequence[str]],
    machine: Machine,
    *,
    ranks: int | None = None,
    limit_s: float | None = None,
    open_book: bool = False,
    capture: Capture | None = None,
) -> JudgeRequest:
    """A request for a submission.

    Args:
        task: whose submission it is.
        code: its source.
        modes: mode -> cases.
        machine: where.
        ranks: how many ranks the cases have.
        limit_s: of each mode, in seconds; None: the task's.
        open_book: whether it may see the reference.
        capture: what the vendor's profiler captures in profiles.
    """
    return JudgeRequest(
        modes=tuple(
            ModeRequest(name=name, cases=tuple(cases), timeout_s=limit_s or _limit_s(task.timeouts_s[name]))
            for name, cases in modes.items()
        ),
        files={name: (ROOT / path).read_text(encoding="utf-8") for name, path in task.files.items()},
        worker_files=tuple(task.files if open_book else task.worker_files),
        submission_name=task.submission_name,
        submission=code,
        seed=task.seed,
        ranks=ranks,
        device=machine.device,
        build_timeout_s=_BUILD_TIMEOUT_S,
        memory_bytes=machine.memory_bytes,
        capture=capture,
    )


def judge(
    task: Task,
    code: str,
    modes: Mapping[str, Sequence[str]],
    machine: Machine,
    *,
    keeps: bool = False,
    **more: Any,  # noqa: ANN401 options of `request_for`
) -> Sequence[StepResult]:
    """Let the built-in harness judge a submission, without a container (see `request_for`).

    With `keeps`, the timed calls are kept for the record of the test that runs now.
    """
    request = request_for(task, code, modes, machine, **more)
    steps = local.evaluate(request, start=start if keeps else None).steps
    return keep(task.name, steps) if keeps else steps


def try_out(trial: Trial, machine: Machine) -> Verdict:
    """Judge a file on the small cases, each after other data of the same shape: answers from memory are wrong then."""
    task = trial.task
    cases = [line for case in (*task.small_tests, *task.small_benchmarks) for line in (_reseeded(case), case)]
    steps = judge(task, trial.path.read_text(encoding="utf-8"), {"test": cases}, machine, ranks=task.small_ranks)
    return verdict_of(steps)


def verdict_of(steps: Sequence[StepResult]) -> Verdict:
    """The first step that was not accepted decides."""
    for step in steps:
        if step.judged is None:
            return Verdict(verdict="none", message=f"step {step.name} was not judged")
        if step.judged.verdict != "accepted":
            return Verdict(verdict=step.judged.verdict, message=f"{step.judged.message}\n{step.stderr[-3000:]}")
    return Verdict(verdict="accepted" if steps else "none", message="")


def time_task(task: Task, machine: Machine, *, small: bool = False) -> tuple[Sequence[Timed], Mapping[str, Verdict]]:
    """Time the reference and every correct solution on a task's benchmarks; the solutions pass its tests before.

    Args:
        task: which.
        machine: where.
        small: the CPU type's cases instead of the official ones, whose speed of light nobody has stated.

    Returns:
        A line per case, and what was said to each: the reference by the name `reference`, solutions by their files'.
    """
    tests, lines = (task.small_tests, task.small_benchmarks) if small else (task.tests, task.benchmarks)
    ranks = task.small_ranks if small else task.ranks
    steps = judge(task, REFERENCE, {"benchmark": lines}, machine, ranks=ranks, open_book=True, keeps=True)
    verdicts = {"reference": verdict_of(steps)}
    means: list[Sequence[float]] = []
    for path in task.right:
        modes = {"test": tests, "benchmark": lines}
        steps = judge(task, path.read_text(encoding="utf-8"), modes, machine, ranks=ranks, keeps=True)
        verdicts[path.name] = verdict_of(steps)
        means += [case_means] if (case_means := _means(steps, len(lines))) else []
    best = min(means, key=geometric_mean, default=[None] * len(lines))
    variant = None if small else machine.variant(task.ranks)
    lights = task.lights.get(variant or "", [None] * len(lines))
    cases = zip(lines, lights, best, strict=True)
    return [Timed(spec=spec, light=light, best_ns=best_ns) for spec, light, best_ns in cases], verdicts


def _means(steps: Sequence[StepResult], count: int) -> Sequence[float]:
    """Nanoseconds per case of an accepted benchmark; none of another."""
    if verdict_of(steps).verdict != "accepted":
        return ()
    result = next(lines_of(step) for step in steps if step.name == "benchmark")
    return [float(result[f"benchmark.{index}.mean"]) for index in range(count)]


def _reseeded(line: str) -> str:
    """Another case of the same shape; one without a seed stays what it is."""
    return re.sub(r"(?<=\bseed: )\d+", lambda found: str(int(found[0]) + 1), line)


def _limit_s(official_s: float) -> float:
    """A mode's time limit: the task's, or less by KERNEL_RUNNER_GPU_SECONDS, where there is little time."""
    return min(official_s, float(os.environ.get("KERNEL_RUNNER_GPU_SECONDS", "inf")))
