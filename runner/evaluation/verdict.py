"""The parts of a verdict that depend on no harness; pure, no I/O, no clock. `kinds` put them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.base.errors import EvaluationError
from runner.base.model import Job, JobResult, Verdict
from runner.evaluation.mode_result import ModeResult
from runner.evaluation.result_rows import Evidence
from runner.evaluation.speed_of_light import SpeedOfLight
from sandbox.protocol import StepResult
from sandbox.spec import Ending, Outcome

#: An eval program may round and start its own clock late; beyond this factor its times are impossible.
_WALL_SLACK = 1.05


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One step's verdict and the sentence that goes with it."""

    verdict: Verdict
    message: str | None = None


ACCEPTED = Finding(verdict=Verdict.ACCEPTED)


def invalid(message: str) -> JobResult:
    """The result of a job whose task or submission cannot be evaluated at all; nothing ran."""
    return JobResult(verdict=Verdict.INVALID, runs=(), error=message, report={}, build_ns=0, eval_ns=0)


def check_ending(evidence: Evidence) -> None:
    """Refuse a report that is none.

    Raises:
        EvaluationError: the container or the harness broke in a way the submission cannot have caused.
    """
    outcome = evidence.outcome
    detail = f": {outcome.detail}" if outcome.detail else ""
    if outcome.ending is Ending.BAD_REPORT:
        raise EvaluationError(f"the container's report does not follow the protocol{detail}")
    if outcome.host_short:
        raise EvaluationError(f"{host_short(outcome)}{detail}")
    killed_for_memory = bool(outcome.oom_kills)
    # Its limits are the container's: who uses them up can make the judge in it fail as well.
    starved = killed_for_memory or bool(outcome.pids_denied)
    if evidence.author_exit is not None:
        return
    if outcome.ending is Ending.DIED and not killed_for_memory:
        raise EvaluationError(f"the container ended without a report{detail}")
    if evidence.ok is False and not starved:
        raise EvaluationError(f"the harness failed: {evidence.message or 'it gave no reason'}")


def host_short(outcome: Outcome) -> str:
    """What the host had too little of, of a container whose own limit was not met."""
    what, key = ("killed a process of the container for memory", "memory_gib")
    if not outcome.oom_kills:
        what, key = ("refused the container a process or thread", "pids")
    return (
        f"the kernel {what}, below its limit: the host, or kernelrunner.slice, has not enough for all slots (`{key}` of"
        " GPU types)"
    )


def missing_step(job: Job, name: str, evidence: Evidence) -> Finding:
    """Why a mode that should have run did not report.

    Raises:
        EvaluationError: nothing that the submission can have done explains it.
    """
    if evidence.author_exit is not None:
        killed = ", which the kernel killed for memory" if evidence.outcome.oom_kills else ""
        return Finding(verdict=Verdict.INVALID, message=f"{evidence.author_exit}{killed} (reference.py)")
    if evidence.outcome.oom_kills:
        return memory_finding(name)
    if evidence.ok is False and evidence.outcome.pids_denied:
        return Finding(
            verdict=Verdict.RUNTIME_ERROR,
            message=f"{name}: the submission used up the container's processes and threads; the judge got none",
        )
    if evidence.outcome.ending is Ending.CPU_TIME:
        return Finding(
            verdict=Verdict.TIME_LIMIT,
            message=f"{name}: killed for using more processor time than its cores have in the time for the evaluation",
        )
    if evidence.outcome.ending is Ending.DEADLINE:
        seconds = evidence.outcome.wall_ns / 1e9
        return Finding(
            verdict=Verdict.TIME_LIMIT,
            message=f"{name}: killed after {seconds:.0f} s, the limit for the whole evaluation",
        )
    raise EvaluationError(f"job {job.id}: the container reported nothing about {name!r}")


def memory_finding(name: str) -> Finding:
    """The verdict on a step whose process was killed for memory."""
    return Finding(
        verdict=Verdict.MEMORY_LIMIT, message=f"{name}: the kernel killed the process at the container's memory limit"
    )


def implausible(
    step: StepResult, reported: ModeResult, *, asked: int, fewest: int, speeds_of_light: Sequence[SpeedOfLight]
) -> str | None:
    """The fault in the times of a step that passed, as the rest of a sentence; None: no fault.

    `asked`: benchmarks; `fewest`: that it may report.
    """
    count = reported.benchmarks
    if count is None or not fewest <= count <= asked:
        return f"it reports {count} benchmarks where {asked} were asked for"
    total_ns = 0.0
    for index, timing in enumerate(reported.timings):
        if timing.mean_ns is None:
            return f"benchmark {index} has the mean {timing.mean_text!r}"
        impossible = _below_floor(speeds_of_light, index, count, timing.mean_ns)
        if impossible is not None:
            return f"in benchmark {index} {impossible}"
        total_ns += timing.mean_ns
    if total_ns > step.duration_ns * _WALL_SLACK:
        return f"its mean times add up to {total_ns:.0f} ns, longer than the {step.duration_ns} ns it ran"
    return None


def _below_floor(speeds_of_light: Sequence[SpeedOfLight], index: int, count: int, mean_ns: float) -> str | None:
    """Why a benchmark's mean cannot be true. Which case it was is known only where a program reports all of them."""
    floors = [
        light.floor
        for light in (speeds_of_light[index : index + 1] if len(speeds_of_light) == count else speeds_of_light)
    ]
    stated = [floor for floor in floors if floor is not None]
    if not stated or len(stated) < len(floors):
        return None
    return min(stated, key=lambda floor: floor.ns).refusal(mean_ns)


def compilation_finding(evidence: Evidence) -> Finding | None:
    """The verdict when nvcc did not get as far as an executable; None when it did.

    Raises:
        EvaluationError: nvcc does not run.
    """
    steps = {step.name: step for step in (*evidence.compiled, *evidence.steps)}
    version, compiler = steps.get("nvcc-version"), steps.get("compile")
    if version is None or version.exit_code != 0:
        raise EvaluationError("nvcc does not run in the container (install the CUDA toolkit in this type's image)")
    if compiler is not None and compiler.exit_code == 0:
        return None
    if evidence.outcome.oom_kills:
        return memory_finding("compile")
    if compiler is None:
        raise EvaluationError("the container reported nothing about the compilation")
    if compiler.timed_out:
        return Finding(
            verdict=Verdict.COMPILE_ERROR,
            message=f"nvcc was killed after {compiler.duration_ns / 1e9:.0f} s, its time limit",
        )
    first = next((line for line in compiler.stderr.splitlines() if "error" in line), "see compilation.stderr")
    return Finding(verdict=Verdict.COMPILE_ERROR, message=f"nvcc failed: {first.strip()[:500]}")
