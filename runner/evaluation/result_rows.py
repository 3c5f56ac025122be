"""The rows of `leaderboard.runs` that a finished job becomes, in KernelBot's keys and formats. Pure.

Owns what is written about a run: its score, its output, its assurance, its speed of light. Must not decide a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.base import results
from runner.base.errors import EvaluationError
from runner.base.model import Artifact, Demand, Json, RunRecord, TimingAssurance, Verdict
from runner.evaluation.mode_result import CaseTiming, ModeResult, assurance_of
from runner.evaluation.speed_of_light import SpeedOfLight
from runner.task_format.model import CuConfig, Harness, Task
from sandbox.protocol import AuthorExit, Judged, StepResult
from sandbox.spec import Outcome
from tasks.harness.judge.stats import time_text

#: The exit code of "ran, check failed".
NOT_PASSED_CODE = 112
#: KernelBot calls a program's run successful for these exit codes.
_SUCCESS_CODES = (0, NOT_PASSED_CODE)
#: What KernelBot stores as the exit code of a run that passed its time limit.
_TIMEOUT_CODE = 114
#: KernelBot keeps whole lines of stdout and stderr up to this many characters.
_KEPT_CHARACTERS = 16284
#: What the texts of all results of a job may take. The database takes a job's rows up to 32 MiB.
RESULT_BYTES = 8 << 20
_LEFT_OUT_KEY = "runner.left_out"
#: Keys that this module alone writes, and keys that only the judge may write.
_SOL_KEY = re.compile(r"benchmark\.\d+\.sol(_limit)?")
_ASSURANCE_KEY = re.compile(r"benchmark\.\d+\.runner\.(timing|interval)")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything known about one finished container."""

    steps: tuple[StepResult, ...]
    artifacts: tuple[Artifact, ...]
    #: The `end` frame: None when there was none.
    ok: bool | None
    message: str | None
    author_exit: AuthorExit | None = None
    outcome: Outcome
    #: From the start of the job to the moment the request was handed over; the part that was a build of its own; the
    #: part that was spent waiting for a build or for the slot.
    request_offset_ns: int
    built_ns: int = 0
    waited_ns: int = 0
    #: Steps of that build, or of the one that the submission's other job made.
    compiled: tuple[StepResult, ...] = ()
    #: KernelBot's keys: gpu, device_count, cpu, runtime, platform, torch, hostname.
    system: Json
    #: What `system_info.runner` says: host, version, devices, image, engine and runtime.
    runner: Json


def score_s(task: Task, timings: Sequence[CaseTiming]) -> float:
    """The score of a passed leaderboard run, in seconds: last, arithmetic or geometric mean of its benchmark means.

    Raises:
        EvaluationError: the result lacks a finite positive mean; `decide` has refused such a run before.
    """
    values = [timing.mean_ns / 1e9 for timing in timings if timing.mean_ns is not None]
    if not values or len(values) != len(timings):
        raise EvaluationError(f"a passed leaderboard run has no usable means: {[each.mean_text for each in timings]}")
    return results.combined(values, task.ranking_by)


def p25_s(task: Task, timings: Sequence[CaseTiming]) -> float | None:
    """The same of the lower quartiles, by which finals compare; None where an eval program reports none."""
    values = [timing.p25_ns / 1e9 for timing in timings if timing.p25_ns is not None]
    return results.combined(values, task.ranking_by) if values and len(values) == len(timings) else None


def run_record(
    step: StepResult,
    reported: ModeResult,
    verdict: Verdict,
    evidence: Evidence,
    *,
    lines: Mapping[str, str],
    compilation: Json | None,
    assurance: Mapping[str, str],
    scored_by: Task | None,
    demand: Demand,
    speeds_of_light: Sequence[SpeedOfLight],
    most_bytes: int = RESULT_BYTES,
) -> RunRecord:
    """One step as a row of `leaderboard.runs`. `lines`: its result; `most_bytes`: of the texts of that."""
    passed = verdict is Verdict.ACCEPTED and reported.check == "pass"
    scored = passed and step.name == "leaderboard"
    start = evidence.request_offset_ns + max(0, step.start_ns)
    exit_code = _TIMEOUT_CODE if step.timed_out else step.exit_code
    # What the judge saw at this run, but for the name: every container is called the same.
    named = {key: value for key, value in evidence.system.items() if key == "hostname"}
    judged_system = step.judged.details.get("system") if step.judged is not None else None
    system = {**evidence.system, **(judged_system if isinstance(judged_system, Mapping) else {}), **named}
    runner = {**evidence.runner, "assurance": dict(assurance)}
    score = score_s(scored_by, reported.timings) if scored and scored_by is not None else None
    detail = None if score is None else _unranked(demand, assurance, reported.timings)
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
        result={} if step.timed_out else within(_with_speed_of_light(lines, reported, speeds_of_light), most_bytes),
        system_info={**system, "runner": runner},
    )


def within(lines: Mapping[str, str], most_bytes: int) -> dict[str, str]:
    """The result without its longest texts, so that the rest takes at most so many bytes; their keys are in it.

    An eval program decides how long its texts are. A job whose rows the database refuses would be evaluated again.
    """
    sizes = {key: len(key.encode()) + len(text.encode()) for key, text in lines.items()}
    total = sum(sizes.values())
    if total <= most_bytes:
        return dict(lines)
    left_out: dict[str, None] = {}
    for key in sorted(sizes, key=lambda key: -sizes[key]):
        if total <= most_bytes:
            break
        total -= sizes[key]
        left_out[key] = None
    kept = {key: text for key, text in lines.items() if key not in left_out}
    shown = ", ".join([*left_out][:20]) + (f" and {len(left_out) - 20} more" if len(left_out) > 20 else "")
    return kept | {_LEFT_OUT_KEY: f"too long: {shown}"[:2000]}


def _with_speed_of_light(
    lines: Mapping[str, str], reported: ModeResult, speeds_of_light: Sequence[SpeedOfLight]
) -> dict[str, str]:
    """The lines with the speed of light of every case that has a time, and without such keys of an eval program."""
    lit = {key: value for key, value in lines.items() if not _SOL_KEY.fullmatch(key)}
    if len(speeds_of_light) == reported.benchmarks:
        for index, (light, timing) in enumerate(zip(speeds_of_light, reported.timings, strict=True)):
            fraction = None if timing.mean_ns is None else light.fraction(timing.mean_ns)
            if fraction is not None and light.limit is not None:
                lit[f"benchmark.{index}.sol"] = f"{fraction:.4g}"
                lit[f"benchmark.{index}.sol_limit"] = light.limit
    return lit


def without_assurance(lines: Mapping[str, str]) -> dict[str, str]:
    """The lines without those that only the judge may write."""
    return {key: value for key, value in lines.items() if not _ASSURANCE_KEY.fullmatch(key)}


def mode_assurance(judged: Judged, reported: ModeResult) -> dict[str, str]:
    """What a judged mode is worth: its timing is that of its least trusted case."""
    cases = (timing.timing for timing in reported.timings if timing.timing is not None)
    timing = min((assurance_of(judged.assurance.get("timing", "")), *cases), key=tuple(TimingAssurance).index)
    return {"correctness": judged.assurance.get("correctness", "judge"), "timing": timing.value}


def _unranked(demand: Demand, assurance: Mapping[str, str], timings: Sequence[CaseTiming]) -> str | None:
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
            where = _widest(timings)
            bound = "cannot bound it more closely" if where is None else f"puts {where}"
            return f"the judge's clock {bound}, and the board asks for {100 * demand.tolerance:.3g} %"


def _widest(timings: Sequence[CaseTiming]) -> str | None:
    """The case whose interval is the widest for its size, as words; None where none is given."""
    widths = [
        (high / low, index, low, high)
        for index, timing in enumerate(timings)
        if timing.interval_ns is not None
        for low, high in (timing.interval_ns,)
    ]
    if not widths:
        return None
    _, index, low, high = max(widths)
    return f"benchmark {index} between {time_text(low)} and {time_text(high)}"


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


def compilation_record(task: Task, evidence: Evidence) -> Json | None:
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


def job_report(harness: Harness, evidence: Evidence, assurance: Mapping[str, str], eval_ns: int) -> dict[str, Any]:
    """`runner.job.report`: phases, outcome and steps."""
    outcome = evidence.outcome
    return {
        "harness": harness.value,
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
                **({} if step.judged is None else {"judged": _judged_report(step.judged)}),
            }
            for step in evidence.steps
        ],
    }


def _judged_report(judged: Judged) -> dict[str, Any]:
    details = {key: value for key, value in judged.details.items() if key != "system"}
    return {"verdict": judged.verdict, "message": judged.message, "details": details}
