"""From a container's report and end to a verdict; pure, no I/O, no clock.

Container code is untrusted even when it is ours: case counts, finiteness, positivity and time bounds are checked again
here. A verdict comes from the judge (built-in harness) or from the eval program's result lines, together with the
observations of engine and cgroup; never from an exit code alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.errors import EvaluationError
from runner.evaluation.context import JobContext
from runner.evaluation.mode_result import ModeResult
from runner.evaluation.plan import Plan
from runner.evaluation.result_rows import (
    RESULT_BYTES,
    Evidence,
    Finding,
    compilation_record,
    job_report,
    mode_assurance,
    run_record,
)
from runner.evaluation.secret import demand_of
from runner.evaluation.speed_of_light import SpeedOfLight
from runner.model import Job, JobResult, Mode, RunRecord, TimingAssurance, Verdict
from runner.task_format.model import CuConfig, Harness, Ranking, Task
from sandbox.protocol import Judged, StepResult
from sandbox.spec import Ending, Outcome

#: A job's error is one sentence for a status line.
_KEPT_ERROR_CHARACTERS = 4000
#: An eval program may round and start its own clock late; beyond this factor its times are impossible.
_WALL_SLACK = 1.05
#: What a kill for memory looks like from within: a compiler that was killed has failed. An eval program whose worker
#: process was killed may wait for it until its time is up; the judge notices at once.
_AFTER_A_KILL: Mapping[Harness, frozenset[Verdict]] = {
    Harness.BUILTIN: frozenset({Verdict.RUNTIME_ERROR, Verdict.COMPILE_ERROR}),
    Harness.PROGRAM: frozenset({Verdict.RUNTIME_ERROR, Verdict.TIME_LIMIT}),
}
IN_PROCESS: Mapping[str, str] = {"correctness": "in_process", "timing": TimingAssurance.CLAIMED.value}


_ACCEPTED = Finding(verdict=Verdict.ACCEPTED)


def decide(context: JobContext, plan: Plan, evidence: Evidence) -> JobResult:
    """The result of one attempt.

    Raises:
        EvaluationError: the container or the harness broke in a way the submission cannot have caused.
    """
    job, task = context.job, context.task
    _check_ending(evidence)
    runs: list[RunRecord] = []
    assurance: Mapping[str, str] = IN_PROCESS
    finding = _compilation_finding(task, plan, evidence)
    compilation = compilation_record(task, evidence)
    by_name = {step.name: step for step in evidence.steps}
    if len(by_name) != len(evidence.steps):
        raise EvaluationError(f"job {job.id}: the container reported a step twice")
    if finding is None:
        finding = _ACCEPTED
        for name in plan.run_names:
            if finding.verdict is not Verdict.ACCEPTED and name in plan.shared.values():
                # It has been told by the first of its rows, as if nothing had run after that.
                break
            step = by_name.get(plan.shared.get(name, name))
            if step is None:
                if finding.verdict is Verdict.ACCEPTED:
                    finding = _missing_step(job, name, evidence)
                break
            step = replace(step, name=name)
            reported = ModeResult.read(step, asked=plan.case_counts[name])
            step_finding = _step_finding(job, task, plan, step, reported, outcome=evidence.outcome)
            if step.judged is not None:
                assurance = mode_assurance(step.judged, reported)
            runs.append(
                run_record(
                    step,
                    reported,
                    step_finding,
                    evidence,
                    compilation=compilation,
                    assurance=assurance,
                    scored_by=task if job.mode is Mode.LEADERBOARD else None,
                    demand=demand_of(job),
                    speeds_of_light=plan.speeds_of_light.get(name, ()),
                    most_bytes=RESULT_BYTES // len(plan.run_names),
                )
            )
            if finding.verdict is Verdict.ACCEPTED:
                finding = step_finding
    eval_ns = sum(by_name[name].duration_ns for name in plan.run_names if name in by_name)
    total_ns = evidence.request_offset_ns + evidence.outcome.wall_ns
    return JobResult(
        verdict=finding.verdict,
        runs=tuple(runs),
        # A program's result line may be megabytes long; all of it is in the run's result.
        error=None if finding.message is None else finding.message[:_KEPT_ERROR_CHARACTERS],
        report=job_report(plan, evidence, assurance, eval_ns),
        build_ns=max(0, total_ns - evidence.waited_ns - eval_ns),
        eval_ns=eval_ns,
        artifacts=evidence.artifacts,
    )


def compile_failure(context: JobContext, plan: Plan, evidence: Evidence) -> JobResult | None:
    """The result of a job whose build leaves nothing to run; None if it has to be run to know.

    Only a compiler that no device takes part in has a verdict. `evidence` is of the container that built.
    """
    try:
        failed = _compilation_finding(context.task, plan, evidence)
        return None if failed is None else decide(context, plan, evidence)
    except EvaluationError:
        # That container broke. The run compiles again, and if it breaks as well, it can be retried.
        return None


def invalid(message: str) -> JobResult:
    """The result of a job whose task or submission cannot be evaluated at all; nothing ran."""
    return JobResult(verdict=Verdict.INVALID, runs=(), error=message, report={}, build_ns=0, eval_ns=0)


def _check_ending(evidence: Evidence) -> None:
    outcome = evidence.outcome
    detail = f": {outcome.detail}" if outcome.detail else ""
    if outcome.ending is Ending.BAD_REPORT:
        raise EvaluationError(f"the container's report does not follow the protocol{detail}")
    killed_for_memory = bool(outcome.oom_kills)
    # Its limits are the container's: who uses them up can make the judge in it fail as well.
    starved = killed_for_memory or bool(outcome.pids_denied)
    if outcome.ending is Ending.DIED and not killed_for_memory:
        raise EvaluationError(f"the container ended without a report{detail}")
    if evidence.ok is False and not starved:
        raise EvaluationError(f"the harness failed: {evidence.message or 'it gave no reason'}")


def _missing_step(job: Job, name: str, evidence: Evidence) -> Finding:
    """Why a mode that should have run did not report."""
    if evidence.outcome.oom_kills:
        return _memory(name)
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


def _memory(name: str) -> Finding:
    return Finding(
        verdict=Verdict.MEMORY_LIMIT, message=f"{name}: the kernel killed the process at the container's memory limit"
    )


def _step_finding(
    job: Job, task: Task, plan: Plan, step: StepResult, reported: ModeResult, *, outcome: Outcome
) -> Finding:
    if step.judged is not None:
        finding = _judged_finding(step, step.judged)
    elif plan.harness is Harness.BUILTIN:
        raise EvaluationError(f"job {job.id}: step {step.name!r} came without the judge's verdict")
    else:
        finding = _program_finding(step, reported)
    if outcome.oom_kills and finding.verdict in _AFTER_A_KILL[plan.harness]:
        return _memory(step.name)
    if finding.verdict is not Verdict.ACCEPTED:
        return finding
    problem = _implausible(task, plan, step, reported)
    if problem is None:
        return finding
    if step.judged is not None:
        raise EvaluationError(f"job {job.id}: the judge accepted {step.name!r}, but {problem}")
    return Finding(verdict=Verdict.REJECTED, message=f"{step.name}: {problem}")


def _judged_finding(step: StepResult, judged: Judged) -> Finding:
    try:
        verdict = Verdict(judged.verdict)
    except ValueError as error:
        raise EvaluationError(f"the judge gave {step.name!r} the unknown verdict {judged.verdict!r}") from error
    if verdict is Verdict.INTERNAL_ERROR:
        raise EvaluationError(f"the judge could not evaluate {step.name!r}: {judged.message}")
    if verdict is Verdict.ACCEPTED:
        return _ACCEPTED
    return Finding(verdict=verdict, message=judged.message or f"{step.name}: {verdict.value}")


def _program_finding(step: StepResult, reported: ModeResult) -> Finding:
    """What an eval program's own words and init's observations amount to."""
    if step.timed_out:
        seconds = step.duration_ns / 1e9
        return Finding(verdict=Verdict.TIME_LIMIT, message=f"{step.name}: killed at the time limit ({seconds:.0f} s)")
    if step.output_limit:
        return Finding(
            verdict=Verdict.OUTPUT_LIMIT,
            message=f"{step.name}: killed after writing {step.stdout_bytes + step.stderr_bytes} bytes of output",
        )
    if reported.check == "pass":
        return _ACCEPTED
    if reported.failure is not None:
        return Finding(verdict=Verdict.WRONG_ANSWER, message=f"{step.name}: {reported.failure}")
    if reported.check == "fail":
        return Finding(verdict=Verdict.WRONG_ANSWER, message=f"{step.name}: the eval program reports check: fail")
    how = f"by signal {step.signal}" if step.exit_code is None else f"with exit code {step.exit_code}"
    # A program that has begun its report has read its cases: then 113 is another program's exit code.
    unread = step.exit_code == 113 and not step.result
    reason = " (the eval program could not read its cases)" if unread else ""
    return Finding(
        verdict=Verdict.INVALID if reason else Verdict.RUNTIME_ERROR,
        message=f"{step.name}: the eval program ended {how} without a result{reason}",
    )


def _implausible(task: Task, plan: Plan, step: StepResult, reported: ModeResult) -> str | None:
    """The fault in a passed step's numbers, as the rest of a sentence; None: no fault."""
    asked = plan.case_counts[step.name]
    if step.name.startswith("profile"):
        return None
    if step.judged is not None and [case.status == "fail" for case in reported.cases] != [False] * asked:
        failed = sum(case.status == "fail" for case in reported.cases)
        return f"it reports {len(reported.cases)} cases, {failed} of them failed, where {asked} were asked for"
    if step.name == "test":
        return None if reported.tests == asked else f"it reports {reported.tests} tests where {asked} were asked for"
    return _implausible_benchmarks(task, plan, step, reported, asked)


def _implausible_benchmarks(task: Task, plan: Plan, step: StepResult, reported: ModeResult, asked: int) -> str | None:
    count = reported.benchmarks
    # Some eval programs run only the last case in leaderboard mode, so fewer is possible where we trust the process.
    fewest = asked if plan.harness is Harness.BUILTIN else 1
    if count is None or not fewest <= count <= asked:
        return f"it reports {count} benchmarks where {asked} were asked for"
    total_ns = 0.0
    for index, timing in enumerate(reported.timings):
        if timing.mean_ns is None:
            return f"benchmark {index} has the mean {timing.mean_text!r}"
        impossible = _below_floor(plan.speeds_of_light.get(step.name, ()), index, count, timing.mean_ns)
        if impossible is not None:
            return f"in benchmark {index} {impossible}"
        total_ns += timing.mean_ns
    if total_ns > step.duration_ns * _WALL_SLACK:
        return f"its mean times add up to {total_ns:.0f} ns, longer than the {step.duration_ns} ns it ran"
    if step.name == "leaderboard" and task.ranking_by is Ranking.LAST and count != 1:
        return f"ranking_by last needs exactly one benchmark, it reports {count}"
    return None


def _below_floor(speeds_of_light: Sequence[SpeedOfLight], index: int, count: int, mean_ns: float) -> str | None:
    """Why a benchmark's mean cannot be true. Which case it was is known only where a program reports all of them."""
    floors = [
        light.floor
        for light in (speeds_of_light[index : index + 1] if len(speeds_of_light) == count else speeds_of_light)
    ]
    known = [floor for floor in floors if floor is not None]
    if not known or len(known) < len(floors):
        return None
    return min(known, key=lambda floor: floor.ns).refusal(mean_ns)


def _compilation_finding(task: Task, plan: Plan, evidence: Evidence) -> Finding | None:
    """The verdict when the compiler did not get as far as an executable; None when it did or there is none."""
    # Where nothing was built ahead under the built-in harness, the worker compiled, and the judge said what came of it.
    if not isinstance(task.config, CuConfig) or (plan.harness is Harness.BUILTIN and not evidence.compiled):
        return None
    steps = {step.name: step for step in (*evidence.compiled, *evidence.steps)}
    version, compiler = steps.get("nvcc-version"), steps.get("compile")
    if version is None or version.exit_code != 0:
        raise EvaluationError("nvcc does not run in the container (install the CUDA toolkit in this type's image)")
    if compiler is None:
        return _missing_compiler(evidence.outcome)
    if compiler.exit_code == 0:
        return None
    if evidence.outcome.oom_kills:
        return _memory("compile")
    if compiler.timed_out:
        return Finding(
            verdict=Verdict.COMPILE_ERROR,
            message=f"nvcc was killed after {compiler.duration_ns / 1e9:.0f} s, its time limit",
        )
    first = next((line for line in compiler.stderr.splitlines() if "error" in line), "see compilation.stderr")
    return Finding(verdict=Verdict.COMPILE_ERROR, message=f"nvcc failed: {first.strip()[:500]}")


def _missing_compiler(outcome: Outcome) -> Finding:
    if outcome.oom_kills:
        return _memory("compile")
    raise EvaluationError("the container reported nothing about the compilation")
