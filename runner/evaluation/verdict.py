"""From what a container reported and how it ended to a verdict, scores and rows; pure, no I/O, no clock.

Container code is untrusted even when it is ours: case counts, finiteness, positivity and time bounds are checked here
again before anything is believed. A verdict comes from the judge's word (built-in harness) or from the eval program's
result lines, joined with what the engine and the cgroup say; never from an exit code alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.errors import EvaluationError
from runner.evaluation.plan import Plan
from runner.evaluation.speed_of_light import SpeedOfLight
from runner.model import Artifact, Demand, Job, JobResult, Json, Mode, RunRecord, TimingAssurance, Verdict
from runner.task_format.model import CuConfig, Harness, Ranking, Task
from sandbox.protocol import StepResult
from sandbox.spec import Ending, Outcome

#: KernelBot calls a program's run successful for these exit codes; 112 means "ran, check failed".
_SUCCESS_CODES = (0, 112)
#: What KernelBot stores as the exit code of a run that passed its time limit.
_TIMEOUT_CODE = 114
#: KernelBot keeps whole lines of stdout and stderr up to this many characters.
_KEPT_CHARACTERS = 16284
#: A time below this is none, and its logarithm in seconds may not exist.
_LEAST_NS = 1e-3
#: A job's error is one sentence for a status line.
_KEPT_ERROR_CHARACTERS = 4000
#: An eval program may round and start its own clock late; beyond this factor its times are impossible.
_WALL_SLACK = 1.05

#: What a kill for memory looks like from within. An eval program whose worker process was killed may wait for it until
#: its time is up; the judge notices at once.
_AFTER_A_KILL: Mapping[Harness, frozenset[Verdict]] = {
    Harness.BUILTIN: frozenset({Verdict.RUNTIME_ERROR}),
    Harness.PROGRAM: frozenset({Verdict.RUNTIME_ERROR, Verdict.TIME_LIMIT}),
}

#: What is written here alone, and what only the judge may write.
_SOL_KEY = re.compile(r"benchmark\.\d+\.sol(_limit)?")
_ASSURANCE_KEY = re.compile(r"benchmark\.\d+\.runner\.(timing|interval)")

IN_PROCESS: Mapping[str, str] = {"correctness": "in_process", "timing": TimingAssurance.CLAIMED.value}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything known about one finished container."""

    steps: tuple[StepResult, ...]
    artifacts: tuple[Artifact, ...]
    #: The `end` frame: None when there was none.
    ok: bool | None
    message: str | None
    outcome: Outcome
    #: From the start of the job to the moment the request was handed over; what of it was a build in a container of
    #: its own, and what was waiting for one, or for the slot.
    request_offset_ns: int
    built_ns: int = 0
    waited_ns: int = 0
    #: Steps of that build, or of the twin's.
    compiled: tuple[StepResult, ...] = ()
    #: KernelBot's keys: gpu, device_count, cpu, runtime, platform, torch, hostname.
    system: Json
    #: What `system_info.runner` says: host, version, devices, image, engine and runtime.
    runner: Json


@dataclass(frozen=True, kw_only=True)
class _Finding:
    """One step's verdict and the sentence that goes with it."""

    verdict: Verdict
    message: str | None = None


_ACCEPTED = _Finding(verdict=Verdict.ACCEPTED)


def decide(job: Job, task: Task, plan: Plan, evidence: Evidence) -> JobResult:
    """The result of one attempt.

    Raises:
        EvaluationError: the container or the harness broke in a way the submission cannot have caused.
    """
    _check_ending(evidence)
    runs: list[RunRecord] = []
    assurance: Mapping[str, str] = IN_PROCESS
    finding = _compilation_finding(task, plan, evidence)
    compilation = _compilation(task, evidence)
    by_name = {step.name: step for step in evidence.steps}
    if len(by_name) != len(evidence.steps):
        raise EvaluationError(f"job {job.id}: the container reported a step twice")
    if finding is None:
        finding = _ACCEPTED
        for name in plan.run_names:
            step = by_name.get(name)
            if step is None:
                if finding.verdict is Verdict.ACCEPTED:
                    finding = _missing_step(job, name, evidence)
                break
            step_finding = _step_finding(job, task, plan, step, evidence.outcome)
            if step.judged is not None:
                assurance = _assurance(step.judged.assurance, step.result)
            runs.append(
                _run(
                    step,
                    step_finding,
                    evidence,
                    compilation=compilation,
                    assurance=assurance,
                    scored_by=task if job.mode is Mode.LEADERBOARD else None,
                    # Public times rank. Of the secret twin only the verdict counts, so it keeps its score.
                    demand=Demand() if job.secret else job.demand,
                    speeds_of_light=plan.speeds_of_light.get(name, ()),
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
        report=_report(plan, evidence, assurance, eval_ns),
        build_ns=max(0, total_ns - evidence.waited_ns - eval_ns),
        eval_ns=eval_ns,
        artifacts=evidence.artifacts,
    )


def compile_failure(job: Job, task: Task, plan: Plan, evidence: Evidence) -> JobResult | None:
    """The result of a job whose build leaves nothing to run; None if it has to be run to know.

    Only a compiler that no device takes part in has a verdict. `evidence` is of the container that built.
    """
    try:
        failed = _compilation_finding(task, plan, evidence)
        return None if failed is None else decide(job, task, plan, evidence)
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


def _missing_step(job: Job, name: str, evidence: Evidence) -> _Finding:
    """Why a mode that should have run did not report."""
    if evidence.outcome.oom_kills:
        return _memory(name)
    if evidence.ok is False and evidence.outcome.pids_denied:
        return _Finding(
            verdict=Verdict.RUNTIME_ERROR,
            message=f"{name}: the submission used up the container's processes and threads; the judge got none",
        )
    if evidence.outcome.ending is Ending.CPU_TIME:
        return _Finding(
            verdict=Verdict.TIME_LIMIT,
            message=f"{name}: killed for using more processor time than its cores have in the time for the evaluation",
        )
    if evidence.outcome.ending is Ending.DEADLINE:
        seconds = evidence.outcome.wall_ns / 1e9
        return _Finding(
            verdict=Verdict.TIME_LIMIT,
            message=f"{name}: killed after {seconds:.0f} s, the limit for the whole evaluation",
        )
    raise EvaluationError(f"job {job.id}: the container reported nothing about {name!r}")


def _memory(name: str) -> _Finding:
    return _Finding(
        verdict=Verdict.MEMORY_LIMIT, message=f"{name}: the kernel killed the process at the container's memory limit"
    )


def _step_finding(job: Job, task: Task, plan: Plan, step: StepResult, outcome: Outcome) -> _Finding:
    if step.judged is not None:
        finding = _judged_finding(step)
    elif plan.harness is Harness.BUILTIN:
        raise EvaluationError(f"job {job.id}: step {step.name!r} came without the judge's verdict")
    else:
        finding = _program_finding(step)
    if outcome.oom_kills and finding.verdict in _AFTER_A_KILL[plan.harness]:
        return _memory(step.name)
    if finding.verdict is not Verdict.ACCEPTED:
        return finding
    problem = _implausible(task, plan, step)
    if problem is None:
        return finding
    if step.judged is not None:
        raise EvaluationError(f"job {job.id}: the judge accepted {step.name!r}, but {problem}")
    return _Finding(verdict=Verdict.REJECTED, message=f"{step.name}: {problem}")


def _judged_finding(step: StepResult) -> _Finding:
    judged = step.judged
    if judged is None:
        raise EvaluationError(f"step {step.name!r} has no judge's verdict")
    try:
        verdict = Verdict(judged.verdict)
    except ValueError as error:
        raise EvaluationError(f"the judge gave {step.name!r} the unknown verdict {judged.verdict!r}") from error
    if verdict is Verdict.INTERNAL_ERROR:
        raise EvaluationError(f"the judge could not evaluate {step.name!r}: {judged.message}")
    if verdict is Verdict.ACCEPTED:
        if not step.name.startswith("profile") and step.result.get("check") != "pass":
            raise EvaluationError(f"the judge accepted {step.name!r} without check = pass")
        return _ACCEPTED
    return _Finding(verdict=verdict, message=judged.message or f"{step.name}: {verdict.value}")


def _program_finding(step: StepResult) -> _Finding:
    """What an eval program's own words and the steward's observations amount to."""
    if step.timed_out:
        seconds = step.duration_ns / 1e9
        return _Finding(verdict=Verdict.TIME_LIMIT, message=f"{step.name}: killed at the time limit ({seconds:.0f} s)")
    if step.output_limit:
        return _Finding(
            verdict=Verdict.OUTPUT_LIMIT,
            message=f"{step.name}: killed after writing {step.stdout_bytes + step.stderr_bytes} bytes of output",
        )
    if step.result.get("check") == "pass":
        return _ACCEPTED
    failed = _first_failure(step.result)
    if failed is not None:
        return _Finding(verdict=Verdict.WRONG_ANSWER, message=f"{step.name}: {failed}")
    if step.result.get("check") == "fail":
        return _Finding(verdict=Verdict.WRONG_ANSWER, message=f"{step.name}: the eval program reports check: fail")
    how = f"by signal {step.signal}" if step.exit_code is None else f"with exit code {step.exit_code}"
    # A program that has begun its report has read its cases: then 113 is somebody else's exit code.
    unread = step.exit_code == 113 and not step.result
    reason = " (the eval program could not read its cases)" if unread else ""
    return _Finding(
        verdict=Verdict.INVALID if reason else Verdict.RUNTIME_ERROR,
        message=f"{step.name}: the eval program ended {how} without a result{reason}",
    )


def _first_failure(result: Mapping[str, str]) -> str | None:
    for kind in ("test", "benchmark"):
        for index in range(_count(result, kind) or 0):
            if result.get(f"{kind}.{index}.status") == "fail":
                spec = result.get(f"{kind}.{index}.spec", "?")
                error = result.get(f"{kind}.{index}.error", "no reason given")
                return f"case {index} ({spec}): {error}"
    return None


def _count(result: Mapping[str, str], kind: str) -> int | None:
    """The announced number of cases, or None when it is absent or no sane number."""
    text = result.get(f"{kind}-count", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None


def _implausible(task: Task, plan: Plan, step: StepResult) -> str | None:
    """What is wrong with a passed step's numbers, as the rest of a sentence; None when nothing is."""
    asked = plan.case_counts[step.name]
    if step.name.startswith("profile"):
        return None
    if step.name == "test":
        count = _count(step.result, "test")
        return None if count == asked else f"it reports {count} tests where {asked} were asked for"
    return _implausible_benchmarks(task, plan, step, asked)


def _implausible_benchmarks(task: Task, plan: Plan, step: StepResult, asked: int) -> str | None:
    count = _count(step.result, "benchmark")
    # Some eval programs run only the last case in leaderboard mode, so fewer is possible where we trust the process.
    fewest = asked if plan.harness is Harness.BUILTIN else 1
    if count is None or not fewest <= count <= asked:
        return f"it reports {count} benchmarks where {asked} were asked for"
    total_ns = 0.0
    for index in range(count):
        mean_ns = _positive(step.result.get(f"benchmark.{index}.mean"))
        if mean_ns is None:
            return f"benchmark {index} has the mean {step.result.get(f'benchmark.{index}.mean')!r}"
        impossible = _below_floor(plan.speeds_of_light.get(step.name, ()), index, count, mean_ns)
        if impossible is not None:
            return f"in benchmark {index} {impossible}"
        total_ns += mean_ns
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


def _positive(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= _LEAST_NS else None


def score_s(task: Task, result: Mapping[str, str]) -> float:
    """The score of a passed leaderboard run, in seconds: last, arithmetic or geometric mean of its benchmark means.

    Raises:
        EvaluationError: the result lacks a finite positive mean; `decide` has refused such a run before.
    """
    means = [_positive(result.get(f"benchmark.{index}.mean")) for index in range(_count(result, "benchmark") or 0)]
    values = [mean / 1e9 for mean in means if mean is not None]
    if not values or len(values) != len(means):
        raise EvaluationError(f"a passed leaderboard run has no usable means: {means}")
    if task.ranking_by is Ranking.GEOM:
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


def _run(
    step: StepResult,
    finding: _Finding,
    evidence: Evidence,
    *,
    compilation: Json | None,
    assurance: Mapping[str, str],
    scored_by: Task | None,
    demand: Demand,
    speeds_of_light: Sequence[SpeedOfLight],
) -> RunRecord:
    passed = finding.verdict is Verdict.ACCEPTED and step.result.get("check") == "pass"
    scored = passed and step.name == "leaderboard"
    start = evidence.request_offset_ns + max(0, step.start_ns)
    exit_code = _TIMEOUT_CODE if step.timed_out else step.exit_code
    # What the judge saw at this run, but for the name: every container is called the same.
    named = {key: value for key, value in evidence.system.items() if key == "hostname"}
    system = {**evidence.system, **_judge_system(step), **named}
    runner = {**evidence.runner, "assurance": dict(assurance)}
    score = score_s(scored_by, step.result) if scored and scored_by is not None else None
    detail = None if score is None else _unranked(demand, assurance, step)
    if detail is not None:
        # runner.set_demand puts the score back when the board demands less.
        runner, score = {**runner, "unranked": {"score_s": score, "detail": detail}}, None
    return RunRecord(
        mode=step.name,
        start_offset_ns=start,
        end_offset_ns=start + max(0, step.duration_ns),
        passed=passed,
        score_s=score,
        compilation=compilation,
        meta={
            "stdout": limit_lines(step.stdout),
            "stderr": limit_lines(step.stderr),
            "success": exit_code in _SUCCESS_CODES,
            # KernelBot's readers expect a number; a signal is written as a shell would.
            "exit_code": exit_code if exit_code is not None else 128 + (step.signal or 0),
            "command": step.command,
            "duration": step.duration_ns / 1e9,
        },
        # Lines that arrived before a timeout say nothing about a whole mode; KernelBot stores none either.
        result={} if step.timed_out else _with_speed_of_light(_own_words(step), speeds_of_light),
        system_info={**system, "runner": runner},
    )


def _with_speed_of_light(result: Mapping[str, str], speeds_of_light: Sequence[SpeedOfLight]) -> dict[str, str]:
    """The result with the speed of light of every case that has a time, and with nobody else's word on it."""
    lit = {key: value for key, value in result.items() if not _SOL_KEY.fullmatch(key)}
    if len(speeds_of_light) == _count(result, "benchmark"):
        for index, light in enumerate(speeds_of_light):
            mean_ns = _positive(result.get(f"benchmark.{index}.mean"))
            fraction = None if mean_ns is None else light.fraction(mean_ns)
            if fraction is not None and light.limit is not None:
                lit[f"benchmark.{index}.sol"] = f"{fraction:.4g}"
                lit[f"benchmark.{index}.sol_limit"] = light.limit
    return lit


def _judge_system(step: StepResult) -> dict[str, Any]:
    system = step.judged.details.get("system") if step.judged is not None else None
    return dict(system) if isinstance(system, Mapping) else {}


def _own_words(step: StepResult) -> Mapping[str, str]:
    """The result without the assurance keys of an eval program, which cannot vouch for its own times."""
    if step.judged is not None:
        return step.result
    return {key: value for key, value in step.result.items() if not _ASSURANCE_KEY.fullmatch(key)}


def _assurance(value: Mapping[str, str], result: Mapping[str, str]) -> dict[str, str]:
    """What a judged mode is worth: its timing is that of its least trusted case."""
    cases = (_case(result, index, "timing") for index in range(_count(result, "benchmark") or 0))
    words = (value.get("timing", ""), *(word for word in cases if word is not None))
    least = min(map(_timing, words), key=tuple(TimingAssurance).index)
    return {"correctness": value.get("correctness", "judge"), "timing": least.value}


def _timing(word: str) -> TimingAssurance:
    """An assurance as the judge writes it; an unknown word counts as claimed."""
    return TimingAssurance(word) if word in set(TimingAssurance) else TimingAssurance.CLAIMED


def _case(result: Mapping[str, str], index: int, key: str) -> str | None:
    return result.get(f"benchmark.{index}.runner.{key}")


def _unranked(demand: Demand, assurance: Mapping[str, str], step: StepResult) -> str | None:
    """Why a time that passed is less than its board demands, as the end of a sentence; None if it ranks."""
    timing = TimingAssurance(assurance["timing"])
    if timing.satisfies(demand.timing):
        return None
    if assurance["correctness"] != "judge":
        return "the task's own eval program took it, in one process with the submission"
    match timing:
        case TimingAssurance.CLAIMED:
            return "the judge's clock cannot vouch for it"
        case TimingAssurance.AUDITED_HOST:
            return "the host's work is part of what the judge's clock has seen"
        case _:
            where = _widest(step.result)
            found = "cannot bound it more closely" if where is None else f"puts {where}"
            return f"the judge's clock {found}, and the board asks for {100 * demand.tolerance:.3g} %"


def _widest(result: Mapping[str, str]) -> str | None:
    """The case whose interval is the widest for its size, as words; None where none is given."""
    found = [
        (high / low, index, low, high)
        for index in range(_count(result, "benchmark") or 0)
        if (pair := _interval(_case(result, index, "interval"))) is not None
        for low, high in (pair,)
    ]
    if not found:
        return None
    _, index, low, high = max(found)
    return f"benchmark {index} between {low / 1e3:.4g} and {high / 1e3:.4g} µs"


def _interval(text: str | None) -> tuple[float, float] | None:
    """Two positive numbers in a JSON list, the lower first."""
    try:
        low, high = json.loads(text or "")
        pair = float(low), float(high)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return pair if all(map(math.isfinite, pair)) and 0 < pair[0] <= pair[1] else None


def limit_lines(text: str) -> str:
    """Whole lines up to the number of characters that KernelBot's readers expect, then how many were left out."""
    if len(text) <= _KEPT_CHARACTERS:
        return text
    lines = text.splitlines(keepends=True)
    kept, used = 0, 0
    while kept < len(lines) and used + len(lines[kept]) <= _KEPT_CHARACTERS:
        used += len(lines[kept])
        kept += 1
    return "".join(lines[:kept]) + f"[...] {len(lines) - kept} lines omitted"


def _compilation_finding(task: Task, plan: Plan, evidence: Evidence) -> _Finding | None:
    """The verdict when the compiler did not get as far as an executable; None when it did or there is none."""
    if not isinstance(task.config, CuConfig):
        return None
    steps = {step.name: step for step in (*evidence.compiled, *evidence.steps)}
    if plan.harness is Harness.BUILTIN and not evidence.compiled:
        # Nothing was built ahead: the worker compiled, and the judge has said what came of it.
        return None
    version, compiler = steps.get("nvcc-version"), steps.get("compile")
    if version is None or version.exit_code != 0:
        raise EvaluationError("nvcc does not run in the container (install the CUDA toolkit in this type's image)")
    if compiler is None:
        return _missing_compiler(evidence.outcome)
    if compiler.timed_out:
        return _Finding(
            verdict=Verdict.COMPILE_ERROR,
            message=f"nvcc was killed after {compiler.duration_ns / 1e9:.0f} s, its time limit",
        )
    if compiler.exit_code != 0:
        first = next((line for line in compiler.stderr.splitlines() if "error" in line), "see compilation.stderr")
        return _Finding(verdict=Verdict.COMPILE_ERROR, message=f"nvcc failed: {first.strip()[:500]}")
    return None


def _missing_compiler(outcome: Outcome) -> _Finding:
    if outcome.oom_kills:
        return _memory("compile")
    raise EvaluationError("the container reported nothing about the compilation")


def _compilation(task: Task, evidence: Evidence) -> Json | None:
    """`runs.compilation`: nvcc's for lang cu; for py the first import if it built an extension (KernelBot's rule)."""
    is_cu = isinstance(task.config, CuConfig)
    steps = (*evidence.compiled, *evidence.steps)
    compiling = (step for step in steps if step.name == "compile")
    step = next((step for step in compiling if is_cu or "-DTORCH_EXTENSION_NAME" in step.stdout), None)
    if step is None:
        return None
    version = next((step.stdout for step in steps if step.name == "nvcc-version"), "")
    return {
        "nvcc_found": is_cu,
        "nvcc_version": version,
        "success": step.exit_code == 0,
        "command": step.command,
        "stdout": limit_lines(step.stdout),
        "stderr": limit_lines(step.stderr),
        "exit_code": step.exit_code if step.exit_code is not None else 128 + (step.signal or 0),
    }


def _report(plan: Plan, evidence: Evidence, assurance: Mapping[str, str], eval_ns: int) -> dict[str, Any]:
    outcome = evidence.outcome
    return {
        "harness": plan.harness.value,
        "assurance": dict(assurance),
        "phases_ns": {
            "build": evidence.built_ns,
            "wait": evidence.waited_ns,
            "container": max(0, evidence.request_offset_ns - evidence.built_ns - evidence.waited_ns),
            "import": max(0, outcome.wall_ns - sum(step.duration_ns for step in evidence.steps)),
            "eval": eval_ns,
        },
        "outcome": {
            "ending": outcome.ending.value,
            "oom_kills": outcome.oom_kills,
            "pids_denied": outcome.pids_denied,
            "peak_memory_bytes": outcome.peak_memory_bytes,
            "cpu_ns": outcome.cpu_ns,
            "wall_ns": outcome.wall_ns,
            "detail": outcome.detail,
        },
        "steps": [
            {
                "name": step.name,
                "command": step.command,
                "exit_code": step.exit_code,
                "signal": step.signal,
                "timed_out": step.timed_out,
                "duration_ns": step.duration_ns,
                "stdout_bytes": step.stdout_bytes,
                "stderr_bytes": step.stderr_bytes,
                **({"judged": _judged_report(step)} if step.judged is not None else {}),
            }
            for step in evidence.steps
        ],
    }


def _judged_report(step: StepResult) -> dict[str, Any]:
    if step.judged is None:
        return {}
    details = {key: value for key, value in step.judged.details.items() if key != "system"}
    return {"verdict": step.judged.verdict, "message": step.judged.message, "details": details}
