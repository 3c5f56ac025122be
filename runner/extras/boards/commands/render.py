"""Leaderboards, rankings, finals and task folders as the command line prints them. Pure: no I/O.

Everything a stranger wrote goes through `runner.base.safe` and is put into `Text`, never into markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from runner.base.model import NEVER, Demand, TimingAssurance
from runner.base.safe import one_line, printable
from runner.base.units import duration, moment, score, size
from runner.cli.render import assured, make_table, validation_text
from runner.extras.boards.commands.task_check import MeasuredCase
from runner.extras.boards.plan import Action, BoardPlan
from runner.extras.boards.store import EVALUATOR, BoardLine, BoardView, FinalLine, FinalPair, RankingLine
from runner.store.records import ValidationLine
from runner.task_format.model import HARNESS, SUBMISSION, Harness, TaskFolder

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

    `demand`: what ranks; None says nothing about it. `validated`: what validations said, by submission and GPU type.
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
        # The least trusted first.
        used = [word for word in TimingAssurance if word.value in {line.timing for line in lines}]
        blocks += [Text(""), *(Text(f"{word.value}: {_TIMINGS[word]}", style="dim") for word in used)]
    return Group(*blocks)


def _ranked_as(place: RankingLine) -> str:
    """The timing assurance of a ranked time; also that only the task's own program has checked the results."""
    return place.timing if place.correctness == "judge" else f"{place.timing}, {place.correctness}"


def validations_table(lines: Sequence[ValidationLine]) -> RenderableType:
    """What validations said, a row each; why, where they failed."""
    if not lines:
        return Text("nothing was validated")
    table = make_table("submission", "gpu", "validated (UTC)", "why")
    for line in lines:
        why = Text(one_line(line.error or "-"))
        table.add_row(str(line.submission_id), Text(one_line(line.gpu_type)), Text(validation_text(line)), why)
    return table


def final_table(lines: Sequence[FinalLine], pairs: Sequence[FinalPair]) -> RenderableType:
    """The ranking of a final, and what its control says."""
    table = make_table("rank", "user", "time", "95 % interval", "evaluations", "hosts", "spread", "submission")
    for line in lines:
        bounded = line.score_low_s is not None and line.score_high_s is not None
        spread = (f"{value - 1:.1%}" for value in (line.spread_hosts, line.spread_rounds) if value is not None)
        table.add_row(
            f"out: {line.fault}" if line.rank is None else str(line.rank),
            Text(one_line(line.user_name or line.user_id)),
            "-" if line.score_s is None else score(line.score_s),
            f"{score(line.score_low_s)} to {score(line.score_high_s)}" if bounded else "-",
            str(line.evaluations),
            str(line.hosts),
            ", ".join(spread),
            str(line.submission_id),
        )
    first = lines[0]
    title = Text(one_line(f"final {first.final_id} on {first.gpu_type}, {moment(first.ended_at)} UTC"), style="bold")
    remarks = [
        "equal ranks cannot be told apart; time: median of the lower quartiles of calls",
        "spread: largest median over smallest, of hosts, of rounds",
        *(_control_text(pair) for pair in pairs if pair.control and pair.final_id == first.final_id),
    ]
    return Group(title, table, *(Text(remark, style="dim") for remark in remarks))


def _control_text(pair: FinalPair) -> str:
    """What the control says: the first of the ranking against itself."""
    what = "is told apart from itself" if pair.told_apart else "is not told apart from itself"
    return f"control: number 1 under another name {what} ({pair.wins} of {pair.n} rounds)"


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


def measured_table(cases: Sequence[MeasuredCase]) -> RenderableType:
    """What the cases of a task folder take."""
    table = make_table("case", "inputs", "output", "generate", "reference", "check", numbers=5)
    for case in cases:
        sizes = (size(value) for value in (case.input_bytes, case.output_bytes))
        times = (duration(value) for value in (case.generate_ns, case.reference_ns, case.check_ns))
        table.add_row(Text(one_line(case.spec)), *sizes, *times)
    return table
