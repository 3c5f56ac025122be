"""Leaderboards, queue and tasks as the command line prints them, and the parts that all such pages share. Pure: no I/O.

Everything a stranger wrote goes through `runner.cli.safe` and is put into `Text`, never into markup. The JSON of the
same records is made in `runner.cli.json_output`, that of a submission in `runner.cli.view`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from runner.base.model import NEVER, Demand, JobState, TimingAssurance, Verdict
from runner.base.units import duration, moment, score, shapes, size
from runner.cli.competition import Action, BoardPlan
from runner.cli.safe import one_line, printable
from runner.cli.task_check import MeasuredCase
from runner.store.boards import EVALUATOR
from runner.store.records import (
    POSITION_LIMIT,
    BoardLine,
    BoardView,
    FailedLine,
    MatchLine,
    RankingLine,
    StatusLine,
    ValidationLine,
)
from runner.task_format.model import HARNESS, SUBMISSION, Harness, TaskFolder

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


def assured(time: str, timing: object) -> str:
    """A time with its timing assurance, e.g. `1.23 ms (measured)`; alone where that is not known."""
    return f"{time} ({one_line(timing)})" if isinstance(timing, str) else time


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


def queue_table(lines: Sequence[StatusLine]) -> RenderableType:
    """Submissions, one per line, in the order given."""
    if not lines:
        return Text("no submissions yet")
    table = make_table(
        "id", "leaderboard", "user", "file", "mode", "gpu", "state", "verdict", "score", "submitted (UTC)"
    )
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
        return f"queued, {position(line.position)}{', again' if line.rerunning else ''}"
    return one_line(", ".join((line.state.value, *([] if line.phase is None else [line.phase]))))


def position(position: int) -> str:
    """A place in the queue; the database counts no further than POSITION_LIMIT."""
    return f"position {position}" if position < POSITION_LIMIT else f"position {POSITION_LIMIT} or later"


def demand_text(demand: Demand) -> str:
    """What ranks on a leaderboard, e.g. `audited times only (tolerance 5 %)`."""
    return f"{_RANKED[demand.timing]} (tolerance {100 * demand.tolerance:.3g} %)"


def boards_table(boards: Sequence[BoardLine]) -> RenderableType:
    """Leaderboards, one per line, in the order given."""
    if not boards:
        return Text("no leaderboards yet")
    table = make_table("name", "gpu types", "deadline (UTC)", "submissions", "visibility", "ranks")
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
    title: str,
    gpus: Sequence[str],
    lines: Sequence[RankingLine],
    *,
    demand: Demand | None = None,
    validated: Mapping[tuple[int, str], ValidationLine] | None = None,
) -> RenderableType:
    """A ranking, one table per GPU type; a type without scores says so.

    Args:
        title: of each table.
        gpus: the GPU types.
        lines: the places.
        demand: what ranks; None says nothing about it.
        validated: what validations said, by submission and GPU type.
    """
    validations = validated or {}
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
        more = ["validated"] if any((place.submission_id, gpu) in validations for place in places) else []
        table = make_table("rank", "user", "score", "submission", "file", "submitted (UTC)", *more)
        for place in places:
            line = validations.get((place.submission_id, gpu))
            table.add_row(
                str(place.rank),
                Text(one_line(place.user_name or place.user_id)),
                assured(score(place.score_s), _ranked_as(place)),
                str(place.submission_id),
                Text(one_line(place.file_name)),
                f"{moment(place.submission_time)}{', late' if place.late else ''}",
                *([Text("-" if line is None else validation_text(line))] if more else []),
            )
        blocks.append(table)
    if lines:
        blocks += [Text(""), *_legend(line.timing for line in lines)]
    return Group(*blocks)


def validation_text(line: ValidationLine) -> str:
    """What a validation said, of which version of the script, and when."""
    outcome = shapes(line.status, line.passed_shapes, line.total_shapes, line.geomean_sync_wall_speedup)
    return f"{outcome} ({one_line(line.contract_version)}, {moment(line.checked_at)})"


def validations_table(lines: Sequence[ValidationLine]) -> RenderableType:
    """What validations said, a row each; why, where they failed."""
    if not lines:
        return Text("nothing was validated")
    table = make_table("submission", "gpu", "validated (UTC)", "why")
    for line in lines:
        why = Text(one_line(line.error or "-"))
        table.add_row(str(line.submission_id), Text(one_line(line.gpu_type)), Text(validation_text(line)), why)
    return table


def _ranked_as(place: RankingLine) -> str:
    """The timing assurance of a ranked time; also that only the task's own program has checked the results."""
    return place.timing if place.correctness == "judge" else f"{place.timing}, {place.correctness}"


def board_page(board: BoardView) -> RenderableType:
    """A leaderboard's task: what is ranked and how, its cases and its files."""
    task = board.task
    files = task.get("files", {})
    utc = "" if board.deadline >= NEVER else " UTC"
    text = Text.assemble(
        (one_line(board.name), "bold"),
        f"  on {one_line(', '.join(board.gpus))}, closes {moment(board.deadline)}{utc}, ",
        f"{board.submissions} submissions\nranks {demand_text(board.demand)}\n\n",
        f"{printable(board.description).rstrip()}\n\n",
        f"language {task.get('lang')}, ranked by the {task.get('ranking_by')} of ",
        f"{len(task.get('benchmarks', ()))} benchmarks, {len(task.get('tests', ()))} tests\n",
        f"templates: {one_line(', '.join(sorted(board.templates)) or 'none')}",
    )
    table = make_table("file", "bytes")
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
    table = make_table("gpu type", "tests", "benchmarks", "hidden")
    for gpu in types or ("any",):
        cases = task.cases_for(gpu)
        counts = (len(listed or ()) for listed in (cases.tests, cases.benchmarks, cases.hidden))
        table.add_row(Text(one_line(gpu)), *map(str, counts))
    files = make_table("file", "bytes")
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
            needs = "another leaderboard" if change.key == EVALUATOR else "--force"
            needs = f"   needs {needs} ({plan.submissions} submissions)" if change.needs_force else ""
            blocks.append(Text.assemble(line, (needs, "red")))
        if plan.remark is not None:
            blocks.append(Text(f"    {one_line(plan.remark)}", style="dim"))
    return Group(*blocks)


def measured_table(cases: Sequence[MeasuredCase]) -> RenderableType:
    """What the cases of a task folder take."""
    table = make_table("case", "inputs", "output", "generate", "reference", "check", numbers=5)
    for case in cases:
        sizes = (size(value) for value in (case.input_bytes, case.output_bytes))
        times = (duration(value) for value in (case.generate_ns, case.reference_ns, case.check_ns))
        table.add_row(Text(one_line(case.spec)), *sizes, *times)
    return table


def failed_table(lines: Sequence[FailedLine]) -> RenderableType:
    """Attempts that gave no result, the newest first, with what became of the job."""
    if not lines:
        return Text("no attempt has failed")
    table = make_table(
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
    table = make_table("leaderboard", "gpu type", "mode", "submissions", "jobs", "")
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


def listing(columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    """Rows of cells that are harmless already, one line each, under plain columns."""
    table = make_table(*columns)
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def make_table(*columns: str, numbers: int = 0) -> Table:
    """A plain table; the `numbers` columns after the first are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if 1 <= index <= numbers else "left")
    return table
