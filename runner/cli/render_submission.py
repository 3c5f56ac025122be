"""A submission as the command line prints it: verdicts, cases, times, output, provenance. Pure: no I/O.

Shows records of `runner.cli.view`, which decides what may be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runner.base.model import JobState, Progress, Verdict
from runner.base.results import Case, cases, is_repeated
from runner.base.safe import one_line, printable, tail
from runner.base.units import between, duration, moment, percent, score, spread
from runner.cli.render import assured, make_table, position, validation_text, verdict_text
from runner.cli.view import ShownJob, ShownRun, ShownSubmission
from runner.store.records import (
    ArtifactLine,
)

#: Lines of stdout and of stderr shown for a run that failed.
_TAIL_LINES = 20
#: Longer than any run.
_MAX_S = 1e9
_SENTENCE: Mapping[Verdict, str] = {
    Verdict.ACCEPTED: "accepted",
    Verdict.WRONG_ANSWER: "wrong answer: a result differs from the reference",
    Verdict.COMPILE_ERROR: "compile error: the submission does not compile",
    Verdict.RUNTIME_ERROR: "runtime error: the submission crashed or cannot be imported",
    Verdict.TIME_LIMIT: "time limit: it took longer than the task allows",
    Verdict.MEMORY_LIMIT: "memory limit: it used more memory than the container has",
    Verdict.OUTPUT_LIMIT: "output limit: it printed too much",
    Verdict.REJECTED: "rejected: the harness caught it cheating",
    Verdict.INVALID: "invalid: submission or task cannot be evaluated, nothing ran",
    Verdict.INTERNAL_ERROR: "internal error: not the submission's fault",
}


def _timing(system_info: Mapping[str, object]) -> object:
    """The timing assurance of a run, by its system info; None: not said."""
    runner = system_info.get("runner")
    assurance = runner.get("assurance") if isinstance(runner, Mapping) else None
    return assurance.get("timing") if isinstance(assurance, Mapping) else None


def _withheld_s(system_info: Mapping[str, object]) -> float | None:
    """The score that a run would have if its leaderboard demanded less; None if it has one, or no time."""
    runner = system_info.get("runner")
    unranked = runner.get("unranked") if isinstance(runner, Mapping) else None
    score_s = unranked.get("score_s") if isinstance(unranked, Mapping) else None
    # JSON has whole numbers that a float has not.
    return float(score_s) if isinstance(score_s, (int, float)) and abs(score_s) < _MAX_S else None


def progress_text(progress: Progress) -> str:
    """How far a run is, e.g. `benchmark 3/7`."""
    phase = one_line(progress.phase)
    return f"{phase} {progress.done}/{progress.total}" if progress.total > 0 else phase


def waiting_text(submission: ShownSubmission) -> str:
    """One line about what a submission is waiting for."""
    status = submission.status
    parts = [_job_waiting(job) for job in submission.jobs if job.state in (JobState.QUEUED, JobState.RUNNING)]
    where = f", {position(status.position)} in the queue" if status.position else ""
    if status.paused is not None:
        where += f"; its leaderboard or GPU type is paused: {status.paused}"
    elif status.no_host_since is not None:
        where += "; no host serves its GPU type now: none is up, or all are draining or out of use"
    return f"submission {status.submission_id}: {'; '.join(parts) or status.state}{where}"


def _job_waiting(job: ShownJob) -> str:
    name = f"{job.gpu_type} {job.mode}{' (secret)' if job.secret else ''}"
    if job.progress is not None and job.state is JobState.RUNNING:
        return f"{name} {progress_text(job.progress)}"
    again = f" (attempt {job.attempt + 1})" if job.attempt > 0 and job.state is JobState.QUEUED else ""
    return f"{name} {job.state}{again}"


def submission_page(submission: ShownSubmission) -> RenderableType:
    """Everything about one submission."""
    status = submission.status
    head = Text.assemble(
        (f"submission {status.submission_id}", "bold"),
        f"  {one_line(status.file_name)} by {one_line(status.user_name or status.user_id)} "
        f"to {one_line(status.leaderboard)}, {moment(status.submission_time)} UTC\n",
        "verdict: ",
        verdict_text(status.verdict, status.state),
        f", {position(status.position)} in the queue" if status.position else "",
        f"   score: {assured(score(status.score_s), None if status.score_s is None else status.timing)}",
        *(f"\n{one_line(remark)}" for remark in _remarks(submission)),
    )
    blocks: list[RenderableType] = [head, *(job_block(job) for job in submission.jobs)]
    return Group(*blocks)


def _remarks(submission: ShownSubmission) -> list[str]:
    """What a reader of verdict and score should know besides."""
    status = submission.status
    remarks = []
    if status.phase is not None and status.state is JobState.RUNNING:
        remarks.append(f"now: {status.phase}")
    if status.paused is not None:
        remarks.append(f"its leaderboard or GPU type is paused: {status.paused}")
    if status.no_host_since is not None:
        remarks.append(f"no host has served its GPU type since {moment(status.no_host_since)} UTC")
    if status.retry_reason is not None:
        when = "" if status.retry_at is None else f", not before {moment(status.retry_at)} UTC"
        remarks.append(f"tried again because of {status.retry_reason}{when}")
    if status.unranked is not None:
        remarks.append(f"does not rank: {status.unranked}")
    for line in submission.validations:
        why = f": {line.error}" if line.error else ""
        remarks.append(f"validated on {line.gpu_type}: {validation_text(line)}{why}")
    if status.rerunning:
        remarks.append("evaluated again; until that is over, the earlier results count")
    elif status.error is not None and any(job.retired_as == "invalidated" for job in submission.jobs):
        remarks.append(status.error)
    return remarks


def job_block(job: ShownJob) -> RenderableType:
    """One job: its verdict in words, then its runs."""
    title = Text.assemble(
        (f"{job.gpu_type}, {job.mode}{', secret' if job.secret else ''}", "bold"),
        "  ",
        verdict_text(job.verdict, job.state),
        "" if job.id is None else f"   job {job.id}, attempt {job.attempt}",
        "" if job.replaces is None else f", again for job {job.replaces}",
    )
    blocks: list[RenderableType] = [Text(""), title]
    blocks += [Text(f"  {_cause(cause)}", style="dim") for cause in job.causes or ()]
    if job.retired_reason is not None:
        blocks.append(Text(f"  does not count: {one_line(job.retired_reason)}"))
    if job.verdict is not None and job.verdict is not Verdict.ACCEPTED:
        blocks.append(Text(f"  {_SENTENCE[job.verdict]}"))
    elif job.progress is not None and job.state is JobState.RUNNING:
        blocks.append(Text(f"  {progress_text(job.progress)}"))
    if job.error is not None:
        blocks.append(Padding.indent(Text(printable(job.error)), 2))
    if job.redacted:
        blocks.append(Text("  of a secret run only the verdict is shown (administrators: --admin)", style="dim"))
        blocks += [_redacted_line(run) for run in job.runs]
    else:
        ranked = [run.result for run in job.runs if run.mode == "leaderboard"]
        distinct = (run for run in job.runs if not is_repeated(run.mode, run.result, ranked))
        blocks += [Padding.indent(run_block(run), 2) for run in distinct]
        blocks += [Text(f"  {_artifact(line)}") for line in job.artifacts]
        blocks += _provenance(job.runs)
    return Group(*blocks)


def _artifact(line: ArtifactLine) -> str:
    """A file that a job left, and how to have it."""
    name = one_line(line.name)
    return f"file {name}, {line.size_bytes / 1024:.0f} KiB: kernel-runner artifact {line.id}"


def _cause(cause: Mapping[str, object]) -> str:
    """Why an attempt ended without a result."""
    where = " ".join(str(cause[key]) for key in ("host", "slot") if cause.get(key))
    return one_line(f"attempt {cause.get('attempt')} on {where}: {cause.get('error')}")


def run_block(run: ShownRun) -> RenderableType:
    """One run: passed or not, its cases, and the end of its output if it failed."""
    ending = "" if run.score_s is None else f"   score {assured(score(run.score_s), _timing(run.system_info))}"
    withheld = _withheld_s(run.system_info)
    if withheld is not None:
        ending = f"   {assured(score(withheld), _timing(run.system_info))}, does not rank"
    blocks: list[RenderableType] = [Text.assemble(f"{run.mode}: ", _passed(passed=run.passed), ending)]
    ran = cases(run.result)
    checked, timed = ([case for case in ran if case.kind == kind] for kind in ("test", "benchmark"))
    reports = [(case.spec, case.report) for case in timed if case.report is not None]
    if checked:
        blocks.append(checked_table(checked))
    if timed and not reports:
        blocks.append(timed_table(timed))
    for spec, report in reports:
        blocks += [Text(one_line(spec)), Text(printable(report).rstrip(), no_wrap=True, overflow="ignore")]
    if not run.passed:
        blocks += _output(run)
    return Group(*blocks)


def checked_table(cases: Sequence[Case]) -> Table:
    """Test cases: spec, pass or fail, message."""
    table = make_table("test", "", "message")
    for case in cases:
        table.add_row(
            Text(one_line(case.spec)), _passed(passed=case.passed), Text(one_line(case.error or case.message or ""))
        )
    return table


def timed_table(cases: Sequence[Case]) -> Table:
    """Benchmark cases: mean with its 95 % confidence interval, median, extremes, samples, what the times are worth."""
    with_sol = any(case.sol is not None for case in cases)
    with_error = any(case.error is not None for case in cases)
    with_timing = any(case.timing is not None for case in cases)
    with_remarks = any(case.remarks for case in cases)
    with_median = any(case.median_ns is not None for case in cases)
    middle = ("median",) if with_median else ()
    table = make_table("benchmark", "mean ± ci95", *middle, "best", "worst", "runs", numbers=4 + len(middle))
    if with_sol:
        table.add_column("speed of light", justify="right")
    if with_timing:
        table.add_column("timing")
    if with_remarks:
        table.add_column("remarks")
    if with_error:
        table.add_column("error")
    for case in cases:
        cells: list[str | Text] = [
            Text(one_line(case.spec)),
            spread(case.mean_ns, case.mean_ci95_ns),
            *([duration(case.median_ns)] if with_median else []),
            duration(case.best_ns),
            duration(case.worst_ns),
            "-" if case.runs is None else str(case.runs),
        ]
        if with_sol:
            cells.append(_speed_of_light(case))
        if with_timing:
            cells.append(Text(_case_timing(case)))
        if with_remarks:
            cells.append(Text(one_line("; ".join(case.remarks)), style="yellow"))
        if with_error:
            cells.append(Text(one_line(case.error or "")))
        table.add_row(*cells)
    return table


def _case_timing(case: Case) -> str:
    """A case's timing assurance, e.g. `measured, 11.2 µs to 12.9 µs`."""
    where = "" if case.bounds_ns is None else f", {between(case.bounds_ns)}"
    return one_line(f"{case.timing or '-'}{where}")


def _speed_of_light(case: Case) -> Text:
    """A fraction and its limit, e.g. `73 % memory`; more than all of it stands out."""
    if case.sol is None:
        return Text("-")
    text = f"{percent(case.sol)} {case.sol_limit or ''}"
    return Text(one_line(text).rstrip(), style="yellow" if case.sol > 1 else "")


def _output(run: ShownRun) -> list[RenderableType]:
    """The end of what a failed run printed, compiler first."""
    sources = [
        ("compiler", (run.compilation or {}).get("stderr")),
        ("stdout", run.meta.get("stdout")),
        ("stderr", run.meta.get("stderr")),
    ]
    blocks: list[RenderableType] = []
    for name, text in sources:
        if not isinstance(text, str) or not text.strip():
            continue
        shown, omitted = tail(text, lines=_TAIL_LINES)
        more = f" (last {_TAIL_LINES} lines, {omitted} before)" if omitted else ""
        blocks += [Text(f"{name}{more}:", style="dim"), Padding.indent(Text(shown), 2)]
    code = run.meta.get("exit_code")
    if code not in (None, 0):
        blocks.append(Text(f"exit code {code}", style="dim"))
    return blocks


def _redacted_line(run: ShownRun) -> Text:
    return Text.assemble(f"  {run.mode}: ", _passed(passed=run.passed))


def _provenance(runs: Sequence[ShownRun]) -> list[RenderableType]:
    """Where the runs happened and what their results are worth, from the last run's system info."""
    if not runs:
        return []
    system = runs[-1].system_info
    runner = system.get("runner")
    runner = runner if isinstance(runner, Mapping) else {}
    assurance = runner.get("assurance")
    lines = []
    if isinstance(assurance, Mapping):
        emulated = runner.get("emulated")
        lines.append(
            f"assurance: correctness {assurance.get('correctness', '?')}, timing {assurance.get('timing', '?')}"
            + (f"; {str(emulated).upper()} is emulated, and nothing is ranked" if emulated else "")
        )
    where = [
        f"{label} {value}"
        for label, value in (
            ("host", runner.get("host") or system.get("hostname")),
            ("slot", runner.get("slot")),
            ("on", system.get("gpu") or system.get("cpu")),
            ("torch", system.get("torch")),
            ("kernel-runner", runner.get("version")),
        )
        if value
    ]
    if where:
        lines.append(", ".join(where))
    return [Text(f"  {one_line(line)}", style="dim") for line in lines]


def _passed(*, passed: bool | None) -> Text:
    if passed is None:
        return Text("?", style="yellow")
    return Text("pass", style="green") if passed else Text("fail", style="red")
