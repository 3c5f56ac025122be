"""From records to what people read: tables and pages as rich renderables. Pure: no I/O.

Everything a stranger wrote goes through `runner.cli.safe` and is put into `Text`, never into markup. JSON for programs
is made in `runner.cli.view`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runner.cli.competition import Action, BoardPlan
from runner.cli.results import CheckedCase, TimedCase, checked_cases, profiled_cases, timed_cases
from runner.cli.safe import one_line, printable, tail
from runner.cli.task_check import MeasuredCase
from runner.cli.units import age, duration, moment, score, size, spread
from runner.cli.view import ShownJob, ShownRun, ShownSubmission
from runner.gpu_types import Figures, GpuType, Registry, Vendor
from runner.model import Demand, JobState, Progress, TimingAssurance, Verdict
from runner.store.records import (
    POSITION_LIMIT,
    ArtifactLine,
    BoardLine,
    BoardView,
    EventLine,
    FailedLine,
    GpuTypeLine,
    HostLine,
    LatestLine,
    MatchLine,
    RankingLine,
    RunningLine,
    StatusLine,
)
from runner.task_format.model import HARNESS, SUBMISSION, Harness, TaskFolder

#: Lines of stdout and of stderr shown for a run that failed.
_TAIL_LINES = 20
#: Of a reader's remarks.
_MOST_ADVICE = 10
#: Seconds after which a host that has not said goodbye is taken for lost.
SILENT_S = 60.0
#: Why an evaluation is not made again, in words.
OBSTACLES: Mapping[str, str] = {
    "open": "left alone: waits or runs",
    "cancelled": "left alone: its user took it back",
    "hacked": "left alone: marked hacked by another program",
    "not offered": "left alone: the leaderboard no longer offers the GPU type",
}
#: What stands behind times.
_TIMINGS: Mapping[TimingAssurance, str] = {
    TimingAssurance.CLAIMED: "on the submission's word alone",
    TimingAssurance.AUDITED_HOST: "the submission's word, bounded by the judge's clock together with the host's work",
    TimingAssurance.MEASURED: "by the judge's own clock",
    TimingAssurance.AUDITED: "the submission's word, confirmed by the judge's clock",
}
#: What ranks where so much is demanded.
_RANKED: Mapping[TimingAssurance, str] = {
    TimingAssurance.CLAIMED: "every time",
    TimingAssurance.MEASURED: "measured and audited times only",
    TimingAssurance.AUDITED: "audited times only",
}
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


def assured(time: str, timing: object) -> str:
    """A time with its timing assurance, e.g. `1.23 ms (measured)`; alone where that is not known."""
    return f"{time} ({one_line(timing)})" if isinstance(timing, str) else time


def _timing(system_info: Mapping[str, object]) -> object:
    """The timing assurance of a run, by its system info; None: not said."""
    runner = system_info.get("runner")
    assurance = runner.get("assurance") if isinstance(runner, Mapping) else None
    return assurance.get("timing") if isinstance(assurance, Mapping) else None


def _withheld_s(system_info: Mapping[str, object]) -> float | None:
    """The score that a run would have if its leaderboard demanded less; None if it has one, or no time."""
    runner = system_info.get("runner")
    unranked = runner.get("unranked") if isinstance(runner, Mapping) else None
    found = unranked.get("score_s") if isinstance(unranked, Mapping) else None
    return float(found) if isinstance(found, (int, float)) else None


def _legend(words: Iterable[str]) -> list[RenderableType]:
    """What the words behind times mean, a line each, the least trusted first."""
    used = set(words)
    return [Text(f"{word.value}: {_TIMINGS[word]}", style="dim") for word in TimingAssurance if word.value in used]


def verdict_text(verdict: Verdict | None, state: JobState | None = None) -> Text:
    """A verdict, or the state of what has none yet."""
    if verdict is None:
        # Over without a verdict: it was taken out.
        return Text("-" if state is None else "none" if state is JobState.DONE else state.value, style="dim")
    return Text(verdict.value, style="green" if verdict is Verdict.ACCEPTED else "red")


def progress_text(progress: Progress) -> str:
    """How far a run is, e.g. `benchmark 3/7`."""
    phase = one_line(progress.phase)
    return f"{phase} {progress.done}/{progress.total}" if progress.total > 0 else phase


def waiting_text(submission: ShownSubmission) -> str:
    """One line about what a submission is waiting for."""
    parts = [_job_waiting(job) for job in submission.jobs if job.state in (JobState.QUEUED, JobState.RUNNING)]
    where = f", {_position(submission.position)} in the queue" if submission.position else ""
    return f"submission {submission.submission_id}: {'; '.join(parts) or submission.state}{where}"


def _job_waiting(job: ShownJob) -> str:
    name = f"{job.gpu_type} {job.mode}{' (secret)' if job.secret else ''}"
    if job.progress is not None and job.state is JobState.RUNNING:
        return f"{name} {progress_text(job.progress)}"
    again = f" (attempt {job.attempt + 1})" if job.attempt > 0 and job.state is JobState.QUEUED else ""
    return f"{name} {job.state}{again}"


def submission_page(submission: ShownSubmission) -> RenderableType:
    """Everything about one submission."""
    head = Text.assemble(
        (f"submission {submission.submission_id}", "bold"),
        f"  {one_line(submission.file_name)} by {one_line(submission.user_name or submission.user_id)} "
        f"to {one_line(submission.leaderboard)}, {moment(submission.submitted)} UTC\n",
        "verdict: ",
        verdict_text(submission.verdict, submission.state),
        f", {_position(submission.position)} in the queue" if submission.position else "",
        f"   score: {assured(score(submission.score_s), None if submission.score_s is None else submission.timing)}",
        *(f"\n{one_line(remark)}" for remark in _remarks(submission)),
    )
    blocks: list[RenderableType] = [head, *(job_block(job) for job in submission.jobs)]
    if submission.history:
        blocks += [Text(""), Text("history", style="bold"), history_table(submission.history)]
    return Group(*blocks)


def _remarks(submission: ShownSubmission) -> list[str]:
    """What a reader of verdict and score should know besides."""
    remarks = []
    if submission.phase is not None and submission.state is JobState.RUNNING:
        remarks.append(f"now: {submission.phase}")
    if submission.paused is not None:
        remarks.append(f"its leaderboard or GPU type is paused: {submission.paused}")
    if submission.no_host_since is not None:
        remarks.append(f"no host has served its GPU type since {moment(submission.no_host_since)} UTC")
    if submission.retry_reason is not None:
        when = "" if submission.retry_at is None else f", not before {moment(submission.retry_at)} UTC"
        remarks.append(f"tried again because of {submission.retry_reason}{when}")
    if submission.unranked is not None:
        remarks.append(f"does not rank: {submission.unranked}")
    if submission.rerunning:
        remarks.append("evaluated again; until that is over, the earlier results count")
    elif submission.error is not None and any(job.retired_as == "invalidated" for job in submission.jobs):
        remarks.append(submission.error)
    return remarks


def history_table(events: Sequence[EventLine]) -> RenderableType:
    """What happened out of the ordinary, oldest first."""
    table = _table("when (UTC)", "what", "job", "attempt", "host", "details")
    for event in events:
        details = ", ".join(f"{key} {value}" for key, value in event.detail.items())
        table.add_row(
            moment(event.at),
            event.kind,
            "-" if event.job_id is None else str(event.job_id),
            "-" if event.attempt is None else str(event.attempt),
            Text(one_line(event.host or "-")),
            Text(one_line(details)),
        )
    return table


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
        blocks += [Padding.indent(run_block(run), 2) for run in job.runs]
        blocks += [Text(f"  {_artifact(line)}") for line in job.artifacts]
        blocks += _provenance(job.runs)
    if job.advice is not None:
        blocks += [Text(f"  {line}", style="dim") for line in _advice(job.advice)]
    return Group(*blocks)


def _advice(advice: Mapping[str, object]) -> list[str]:
    """What a reader of source code says; it decides nothing, and the first line says so."""
    whose = one_line(f"{advice.get('tool')} {advice.get('version')}, advice from the source alone, no verdict")
    if "error" in advice:
        return [one_line(f"{whose}: {advice['error']}")]
    findings = advice.get("findings")
    findings = findings if isinstance(findings, list) else []
    lines = [f"{whose}: {advice.get('count', 0)} remarks"]
    known = (entry for entry in findings[:_MOST_ADVICE] if isinstance(entry, Mapping))
    lines += [f"  {entry.get('severity')} {entry.get('pattern')}: {entry.get('evidence')}" for entry in known]
    return [one_line(line) for line in lines]


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
    checked, timed = checked_cases(run.result), timed_cases(run.result)
    if checked:
        blocks.append(checked_table(checked))
    profiled = profiled_cases(run.result)
    if timed and not profiled:
        blocks.append(timed_table(timed))
    for case in profiled:
        blocks += [Text(one_line(case.spec)), Text(printable(case.report).rstrip(), no_wrap=True, overflow="ignore")]
    if not run.passed:
        blocks += _output(run)
    return Group(*blocks)


def checked_table(cases: Sequence[CheckedCase]) -> Table:
    """Test cases: spec, pass or fail, message."""
    table = _table("test", "", "message")
    for case in cases:
        table.add_row(Text(one_line(case.spec)), _passed(passed=case.passed), Text(one_line(case.message or "")))
    return table


def timed_table(cases: Sequence[TimedCase]) -> Table:
    """Benchmark cases: mean with its 95 % confidence interval, median, extremes, samples, what the times are worth."""
    with_sol = any(case.sol is not None for case in cases)
    with_error = any(case.error is not None for case in cases)
    with_timing = any(case.timing is not None for case in cases)
    with_remarks = any(case.remarks for case in cases)
    with_median = any(case.median_ns is not None for case in cases)
    middle = ("median",) if with_median else ()
    table = _table("benchmark", "mean ± ci95", *middle, "best", "worst", "runs", numbers=4 + len(middle))
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
            spread(case.mean_ns, case.ci95_ns),
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


def _case_timing(case: TimedCase) -> str:
    """A case's timing assurance, e.g. `measured, 11.2 µs to 12.9 µs`."""
    between = case.interval_ns
    where = [] if between is None else [f"{duration(between[0])} to {duration(between[1])}"]
    return one_line(", ".join((case.timing or "-", *where)))


def _speed_of_light(case: TimedCase) -> Text:
    """A fraction and its limit, e.g. `73% memory`; more than all of it stands out."""
    if case.sol is None:
        return Text("-")
    shown = f"{100 * case.sol:.2g}%" if case.sol < 0.995 else f"{case.sol:.0%}"
    return Text(one_line(f"{shown} {case.sol_limit or ''}").rstrip(), style="yellow" if case.sol > 1 else "")


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
    return Text.assemble(f"  {run.mode}: ", _passed(passed=run.passed), f"   score {score(run.score_s)}")


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


def queue_table(lines: Sequence[StatusLine]) -> RenderableType:
    """Submissions, one per line, in the order given."""
    if not lines:
        return Text("no submissions yet")
    table = _table("id", "leaderboard", "user", "file", "mode", "gpu", "state", "verdict", "score", "submitted (UTC)")
    for line in lines:
        table.add_row(
            str(line.submission_id),
            Text(one_line(line.leaderboard)),
            Text(one_line(line.user_name or line.user_id)),
            Text(one_line(line.file_name)),
            ", ".join(line.modes),
            Text(one_line(", ".join(line.gpu_types))),
            Text(_state(line)),
            verdict_text(line.verdict),
            assured(score(line.score_s), None if line.score_s is None else line.timing),
            moment(line.submission_time),
        )
    return table


def _state(line: StatusLine) -> str:
    if line.state is JobState.QUEUED and line.position is not None:
        return f"queued, {_position(line.position)}{', again' if line.rerunning else ''}"
    return one_line(", ".join((line.state.value, *([] if line.phase is None else [line.phase]))))


def _position(position: int) -> str:
    """A place in the queue; the database counts no further than POSITION_LIMIT."""
    return f"position {position}" if position < POSITION_LIMIT else f"position {POSITION_LIMIT} or later"


def demand_text(demand: Demand) -> str:
    """What ranks on a leaderboard, e.g. `audited times only (tolerance 5 %)`."""
    return f"{_RANKED[demand.timing]} (tolerance {100 * demand.tolerance:.3g} %)"


def boards_table(boards: Sequence[BoardLine]) -> RenderableType:
    """Leaderboards, one per line, in the order given."""
    if not boards:
        return Text("no leaderboards yet")
    table = _table("name", "gpu types", "deadline (UTC)", "submissions", "visibility", "ranks")
    for board in boards:
        table.add_row(
            Text(one_line(board.name)),
            Text(one_line(", ".join(board.gpus))),
            moment(board.deadline),
            str(board.submissions),
            Text(one_line(board.visibility)),
            demand_text(board.demand),
        )
    return table


def ranking_page(
    title: str, gpus: Sequence[str], lines: Sequence[RankingLine], *, demand: Demand | None = None
) -> RenderableType:
    """A ranking, one table per GPU type; a type without scores says so. With `demand` it says what ranks."""
    blocks: list[RenderableType] = []
    if demand is not None:
        blocks += [Text(f"ranks {demand_text(demand)}", style="dim")]
    for gpu in dict.fromkeys((*gpus, *(line.gpu_type for line in lines))):
        places = [line for line in lines if line.gpu_type == gpu]
        if blocks:
            blocks.append(Text(""))
        blocks.append(Text(one_line(f"{title} on {gpu}"), style="bold"))
        if not places:
            blocks.append(Text("no ranked submissions yet"))
            continue
        table = _table("rank", "user", "score", "submission", "file", "submitted (UTC)")
        for place in places:
            table.add_row(
                str(place.rank),
                Text(one_line(place.user_name or place.user_id)),
                assured(score(place.score_s), _ranked_as(place)),
                str(place.submission_id),
                Text(one_line(place.file_name)),
                moment(place.submission_time),
            )
        blocks.append(table)
    if lines:
        blocks += [Text(""), *_legend(line.timing for line in lines)]
    return Group(*blocks)


def _ranked_as(place: RankingLine) -> str:
    """The timing assurance of a ranked time; also that only the task's own program has checked the results."""
    return place.timing if place.correctness == "judge" else f"{place.timing}, {place.correctness}"


def board_page(board: BoardView) -> RenderableType:
    """A leaderboard's task: what is ranked and how, its cases and its files."""
    task = board.task
    files = task.get("files", {})
    text = Text.assemble(
        (one_line(board.name), "bold"),
        f"  on {one_line(', '.join(board.gpus))}, until {moment(board.deadline)} UTC, ",
        f"{board.submissions} submissions\nranks {demand_text(board.demand)}\n\n",
        f"{printable(board.description).rstrip()}\n\n",
        f"language {task.get('lang')}, ranked by the {task.get('ranking_by')} of ",
        f"{len(task.get('benchmarks', ()))} benchmarks, {len(task.get('tests', ()))} tests\n",
        f"templates: {one_line(', '.join(sorted(board.templates)) or 'none')}",
    )
    table = _table("file", "bytes")
    for name, content in sorted(files.items()):
        role = content if content in (SUBMISSION, HARNESS) else str(len(str(content).encode()))
        table.add_row(Text(one_line(name)), role)
    return Group(text, Text(""), table)


def task_page(folder: TaskFolder) -> RenderableType:
    """A task folder that passed every check."""
    task = folder.task
    types = tuple(dict.fromkeys((*folder.gpus, *task.extra.cases)))
    program = "the built-in harness" if task.harness is Harness.BUILTIN else "its own eval program"
    text = Text.assemble(
        ("✓", "green"),
        f" {one_line(folder.name)}: language {task.lang}, evaluated by {program}, ranked by {task.ranking_by}\n",
        f"  time limits: test {task.test_timeout_s} s, benchmark {task.benchmark_timeout_s} s, ",
        f"ranked {task.ranked_timeout_s} s\n",
        f"  templates: {one_line(', '.join(sorted(folder.templates)) or 'none')}",
    )
    table = _table("gpu type", "tests", "benchmarks", "hidden")
    for gpu in types or ("any",):
        cases = task.cases_for(gpu)
        counts = (len(found or ()) for found in (cases.tests, cases.benchmarks, cases.hidden))
        table.add_row(Text(one_line(gpu)), *map(str, counts))
    files = _table("file", "bytes")
    for name, content in sorted(task.files.items()):
        files.add_row(Text(one_line(name)), content if content in (SUBMISSION, HARNESS) else str(len(content.encode())))
    return Group(text, Text(""), table, Text(""), files)


def import_page(plans: Sequence[BoardPlan], *, stored: bool) -> RenderableType:
    """What an import or an update does to each leaderboard, or would do."""
    would = "" if stored else "would be "
    blocks: list[RenderableType] = []
    for plan in plans:
        sign, style, words = {
            Action.CREATE: (
                "+",
                "green",
                f"{would}created on {', '.join(plan.gpus)} until {moment(plan.deadline)} UTC",
            ),
            Action.UPDATE: ("~", "yellow", f"{would}updated"),
            Action.UNCHANGED: ("=", "dim", "unchanged"),
            Action.SKIP: ("-", "dim", "skipped"),
        }[plan.action]
        blocks.append(Text.assemble((sign, style), f" {one_line(plan.name)}: {words}"))
        for change in plan.changes:
            line = f"    {one_line(change.key)}: {change.text}"
            needs = f"   needs --force ({plan.submissions} submissions)" if change.needs_force else ""
            blocks.append(Text.assemble(line, (needs, "red")))
        if plan.remark is not None:
            blocks.append(Text(f"    {one_line(plan.remark)}", style="dim"))
    return Group(*blocks)


def measured_table(cases: Sequence[MeasuredCase]) -> RenderableType:
    """What the cases of a task folder take."""
    table = _table("case", "inputs", "output", "generate", "reference", "check", numbers=5)
    for case in cases:
        sizes = (size(value) for value in (case.input_bytes, case.output_bytes))
        times = (duration(value) for value in (case.generate_ns, case.reference_ns, case.check_ns))
        table.add_row(Text(one_line(case.spec)), *sizes, *times)
    return table


def gpu_types_table(types: Sequence[GpuTypeLine], hosts: Sequence[HostLine], registry: Registry) -> RenderableType:
    """GPU types with the number of slots for each on hosts that are up; `registry`: this host's."""
    if not types:
        return Text("no GPU types announced yet; start a daemon with `kernel-runner serve`")
    slots = slots_per_type([line for line in hosts if host_state(line) == "up"])
    known = {entry.name: entry for entry in registry.all()}
    table = _table("name", "slots", "queued", "vendor", "aliases", "on hardware", "description", numbers=2)
    for line in types:
        table.add_row(
            Text(one_line(line.name)),
            str(slots.get(line.name, 0)),
            str(line.queued),
            Text(one_line(line.vendor)),
            Text(one_line(", ".join(line.aliases))),
            _on_hardware(known[line.name]) if line.name in known else "unknown",
            Text(one_line(line.description)),
        )
    return table


def _on_hardware(entry: GpuType) -> str:
    """The day of the last run on a device of a type, or "never"; a type without devices has none."""
    if entry.vendor is Vendor.NONE:
        return "-"
    return "never" if entry.last_hardware_run is None else entry.last_hardware_run.isoformat()


def gpu_type_page(entry: GpuType, origin: Path | None) -> RenderableType:
    """One GPU type of a host: its settings, the figures of its devices, and what ran on them."""
    settings = {
        "file": origin,
        "description": one_line(entry.description),
        "vendor": entry.vendor.value,
        "aliases": ", ".join(entry.aliases),
        "devices per slot": entry.count,
        "device names": ", ".join(entry.device_names),
        "partition": entry.partition,
        "detected": "yes" if entry.detect else "no, only where `slots` names it",
        "image": entry.image if entry.image == "host" else f"{entry.image}, {entry.image_python}",
        "runtime": entry.runtime,
        "nvcc architecture": entry.nvcc_arch,
        "environment": " ".join(f"{key}={value}" for key, value in entry.environment.items()),
        "container": f"{entry.memory_gib:g} GiB memory, {entry.pids} processes, {entry.shm_mib} MiB /dev/shm, "
        f"{entry.scratch_mib} MiB for each scratch folder",
        "device": ", ".join(_figures(entry.device)),
        **{f"product {', '.join(one.device_names)}": ", ".join(_figures(one.device)) for one in entry.products},
    }
    lines = [Text(entry.name, style="bold")]
    lines += [Text(f"  {key}: {value}") for key, value in settings.items() if value not in (None, "")]
    if entry.vendor is not Vendor.NONE:
        lines.append(Text(f"  on hardware: {'' if entry.hardware_runs else 'never'}".rstrip()))
    for run in sorted(entry.hardware_runs, key=lambda run: run.date, reverse=True):
        software = f", {run.software}" if run.software else ""
        lines.append(Text(f"    {run.date.isoformat()}: {run.device}, driver {run.driver}{software}"))
        lines += [Text(f"      {what}") for what in run.what]
    return Group(*lines)


def _figures(figures: Figures) -> Iterator[str]:
    """The figures that are known, with their units."""
    if figures.memory_gib is not None:
        yield f"{figures.memory_gib:g} GiB"
    if figures.l2_mib is not None:
        yield f"L2 {figures.l2_mib:g} MiB"
    if figures.l3_mib is not None:
        yield f"L3 {figures.l3_mib:g} MiB"
    if figures.bandwidth_gb_s is not None:
        yield f"{figures.bandwidth_gb_s:g} GB/s"
    yield from (f"{dtype} {rate:g} TFLOP/s" for dtype, rate in figures.peak_tflops.items())


def registry_table(types: Sequence[tuple[GpuType, Path | None]]) -> RenderableType:
    """A host's own GPU types and the file that each is from."""
    table = _table("name", "vendor", "count", "aliases", "on hardware", "description", "file")
    for entry, origin in types:
        table.add_row(
            Text(entry.name),
            entry.vendor.value,
            str(entry.count),
            Text(", ".join(entry.aliases)),
            _on_hardware(entry),
            Text(one_line(entry.description)),
            Text(str(origin)),
        )
    return table


def hosts_table(hosts: Sequence[HostLine]) -> RenderableType:
    """Daemons with their slots and when each was last heard of."""
    if not hosts:
        return Text("no hosts yet; start a daemon with `kernel-runner serve`")
    table = _table("name", "state", "version", "slots", "running", "last seen", "")
    for line in hosts:
        counts = slots_per_type((line,))
        table.add_row(
            Text(one_line(line.name)),
            host_state(line),
            Text(one_line(line.version)),
            Text(one_line(", ".join(f"{count} x {gpu}" for gpu, count in sorted(counts.items())) or "none")),
            str(line.running),
            f"{age(line.silent_s)} ago",
            Text(one_line("; ".join(filter(None, (_drain_note(line), *_quarantine_notes(line)))))),
        )
    return table


def host_state(line: HostLine) -> str:
    """How a host stands: up, draining, silent or stopped; what is gone cannot drain."""
    if line.stopped_at is not None:
        return "stopped"
    if line.silent_s > SILENT_S:
        return "silent"
    return "draining" if line.draining else "up"


def _quarantine_notes(line: HostLine) -> list[str]:
    away = [f"{slot['name']} not used: {slot['quarantined']}" for slot in line.slots if slot.get("quarantined")]
    return away + [
        f"{slot['name']} ranks nothing: {slot['degraded']}"
        for slot in line.slots
        if slot.get("degraded") and not slot.get("quarantined")
    ]


def _drain_note(line: HostLine) -> str:
    if not line.draining:
        return ""
    return "draining" if line.drain_reason is None else f"draining: {line.drain_reason}"


def work_of(line: RunningLine | LatestLine | FailedLine) -> str:
    """What a job is for: its submission and leaderboard, or its batch."""
    if line.batch is not None:
        return f"batch {one_line(line.batch)}"
    return f"{line.submission_id} {one_line(line.leaderboard or '-')}"


def failed_table(lines: Sequence[FailedLine]) -> RenderableType:
    """Attempts that gave no result, the newest first, with what became of the job."""
    if not lines:
        return Text("no attempt has failed")
    table = _table(
        "when (UTC)",
        "submission",
        "leaderboard or batch",
        "gpu type",
        "mode",
        "job",
        "attempt",
        "host",
        "slot",
        "now",
        "why",
    )
    for line in lines:
        table.add_row(
            moment(line.at),
            "-" if line.submission_id is None else str(line.submission_id),
            Text(one_line(line.leaderboard or f"batch {line.batch}")),
            Text(one_line(line.gpu_type)),
            "group" if line.batch is not None else f"{line.mode.value}{', secret' if line.secret else ''}",
            str(line.job_id),
            str(line.attempt),
            Text(one_line(line.host or "-")),
            Text(one_line(line.slot or "-")),
            verdict_text(line.verdict, line.state),
            Text(one_line(line.error or "its host was silent" if line.kind == "reclaimed" else line.error or "-")),
        )
    return table


def matching_table(lines: Sequence[MatchLine], *, counting: bool) -> RenderableType:
    """What a rerun or, with `counting`, an invalidation concerns, by board, GPU type and mode."""
    if not lines:
        return Text("nothing matches")
    table = _table("leaderboard", "gpu type", "mode", "submissions", "jobs", "")
    for line in lines:
        left_alone = "" if counting else OBSTACLES.get(line.obstacle or "", line.obstacle or "")
        table.add_row(
            Text(one_line(line.leaderboard)),
            Text(one_line(line.gpu_type)),
            line.mode.value,
            str(line.evaluations),
            str(line.counting if counting else line.jobs),
            left_alone,
        )
    return table


def slots_per_type(hosts: Sequence[HostLine]) -> Mapping[str, int]:
    """How many slots these hosts use, by GPU type; those whose last container does not go are left out."""
    return Counter(str(slot.get("gpu_type")) for line in hosts for slot in line.slots if not slot.get("quarantined"))


def _passed(*, passed: bool | None) -> Text:
    if passed is None:
        return Text("?", style="yellow")
    return Text("pass", style="green") if passed else Text("fail", style="red")


def listing(columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    """Rows of cells that are harmless already, one line each, under plain columns."""
    table = _table(*columns)
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def _table(*columns: str, numbers: int = 0) -> Table:
    """A plain table; the `numbers` columns after the first are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if 1 <= index <= numbers else "left")
    return table
