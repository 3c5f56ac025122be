"""`leaderboard create`, `update` and `import`: tasks become leaderboards.

Reads task folders through `runner.task_format`, which refuses what is wrong before anything is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

import tasks
from runner.base.dates import DateError, read_date
from runner.base.errors import BoardError
from runner.base.gpu_types import Registry
from runner.base.model import Demand, TimingAssurance
from runner.base.units import moment
from runner.cli.app import example, note, out, out_json, session
from runner.extras.boards import publication
from runner.extras.boards.commands import render
from runner.extras.boards.competition import Problem, load_competition
from runner.extras.boards.plan import BoardPlan, plan_board, plan_update
from runner.extras.boards.publication import DEFAULT_LIFETIME
from runner.extras.boards.store import BoardStore, Parts, other_evaluator
from runner.task_format import load
from runner.task_format.model import Harness, TaskFolder

#: What a leaderboard can demand. AUDITED_HOST lies between these, and satisfies only the first.
_DEMANDABLE: Final = (TimingAssurance.CLAIMED, TimingAssurance.MEASURED, TimingAssurance.AUDITED)
#: The tolerances that a leaderboard can ask for, as parts of the time.
_TOLERANCES: Final = (0.01, 0.5)
#: A part of the group `leaderboard`.
commands = typer.Typer()


def parse_deadline(text: str) -> datetime:
    """A deadline as people write it; UTC, unless an offset says otherwise.

    Raises:
        typer.BadParameter: it is no date.
    """
    try:
        return read_date(text, zone=UTC)
    except DateError as error:
        raise typer.BadParameter(str(error)) from None


def parse_timing(text: str) -> TimingAssurance:
    """What a leaderboard is to demand.

    Raises:
        typer.BadParameter: no leaderboard can demand that.
    """
    demanded = next((timing for timing in _DEMANDABLE if timing.value == text.strip()), None)
    if demanded is None:
        raise typer.BadParameter(f"found {text!r}, expected {', '.join(_DEMANDABLE)}")
    return demanded


def parse_tolerance(text: str) -> float:
    """How closely a time is to be bounded, as a part of it.

    Raises:
        typer.BadParameter: no number, or none that a leaderboard can ask for.
    """
    low, high = _TOLERANCES
    try:
        tolerance = float(text)
    except ValueError:
        tolerance = math.nan
    if not low <= tolerance <= high:
        raise typer.BadParameter(f"found {text!r}, expected a number from {low} to {high} (0.1 is 10 %)")
    return tolerance


SourceArgument = Annotated[Path, typer.Argument(metavar="DIR_OR_ZIP", exists=True)]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="N", help="Leaderboard.", show_default="the folder's name")
]
GpuOption = Annotated[list[str] | None, typer.Option("--gpu", metavar="T", help="GPU type; repeatable.")]
DeadlineOption = Annotated[
    datetime | None,
    typer.Option(
        "--deadline",
        parser=parse_deadline,
        metavar="D",
        help="`2030-06-30` or `'2030-06-30 18:00'` (UTC), or `2030-06-30T18:00+02:00`.",
    ),
]
TimingOption = Annotated[
    TimingAssurance | None,
    typer.Option(
        "--timing",
        parser=parse_timing,
        metavar="A",
        help="What a time needs to rank: `claimed`, `measured` or `audited`.",
    ),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        parser=parse_tolerance,
        metavar="F",
        help="How closely the judge's clock bounds an audited time: 0.01 to 0.5 of it.",
    ),
]
OpenCodeOption = Annotated[
    bool | None,
    typer.Option("--open-code/--closed-code", help="Whether everyone may read ranked code after the deadline."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@commands.command(
    epilog=example("kernel-runner leaderboard create tasks/problems/vectoradd --gpu CPU --deadline '2031-06-30 18:00'")
)
def create(
    context: typer.Context,
    *,
    source: SourceArgument,
    name: NameOption = None,
    gpu: GpuOption = None,
    deadline: DeadlineOption = None,
    timing: TimingOption = None,
    tolerance: ToleranceOption = None,
    open_code: OpenCodeOption = None,
) -> None:
    """Publish a task as a new leaderboard.

    Nothing is stored unless the whole folder is right. Without options it has the GPU types of task.yml, is open for a
    year, and ranks every time (`claimed`, tolerance 0.1). Its name has no white space.

    A time worth less than --timing passes and does not rank (docs/frontends.md#what-a-time-is-worth). A task with its
    own eval program has `claimed` times only: if more is demanded, nothing ranks.

    After the deadline everyone may read ranked code, and a public data export may have it, unless --closed-code is
    given.
    """
    ends = deadline or datetime.now(UTC) + DEFAULT_LIFETIME
    folder = load(source)
    board = name or folder.name
    with session(context).open(BoardStore) as store:
        gpus = publication.offered(store, session(context).config.gpus_dir, folder, gpu or folder.gpus, board)
        demand = {"timing": timing, "tolerance": tolerance, "open_code": open_code}
        publication.create(store, board, folder, deadline=ends, gpus=gpus, **demand)
    _warn(folder, timing)
    for entry in Registry.load(session(context).config.gpus_dir).all():
        if entry.emulate_cuda and entry.name in gpus:
            note(f"{entry.name} emulates CUDA: submissions are tested and timed there, and not ranked")
    note(f"leaderboard {board} {_state(gpus, ends)}")


@commands.command(
    epilog=example(
        "kernel-runner leaderboard update tasks/problems/vectoradd --timing audited --tolerance 0.05 --dry-run",
    )
)
def update(
    context: typer.Context,
    *,
    source: SourceArgument,
    name: NameOption = None,
    gpu: GpuOption = None,
    deadline: DeadlineOption = None,
    timing: TimingOption = None,
    tolerance: ToleranceOption = None,
    open_code: OpenCodeOption = None,
    force: Annotated[bool, typer.Option("--force", help="Store incomparable changes too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Replace a leaderboard's task, and show what changed.

    Options that are not given stay as they are. A new --timing applies to earlier results at once, a new --tolerance to
    runs that are claimed later.

    If there are submissions, changes that make scores incomparable need --force; without it nothing is stored. They
    are, in task.yml, `files`, `config`, `lang` and `benchmarks`, as in KernelBot; in runner.yml, `private`, and
    `benchmarks` in `cases` of the leaderboard's GPU types. Another `harness` (if another one then evaluates) needs
    another leaderboard: scores of the judge and of an eval program never rank together.
    """
    folder = load(source)
    board = name or folder.name
    with session(context).open(BoardStore) as store:
        board = store.board_name(board)
        present = store.board(board)
        gpus = publication.offered(store, session(context).config.gpus_dir, folder, gpu or present.gpus, board)
        demand = Demand(
            timing=timing or present.demand.timing,
            tolerance=tolerance or present.demand.tolerance,
        )
        plan = plan_update(
            board,
            folder,
            present=present,
            deadline=deadline or present.deadline,
            gpus=gpus,
            demand=demand,
            open_code=present.open_code if open_code is None else open_code,
        )
        stored = not dry_run and (force or not plan.needs_force) and not plan.changes_evaluator
        if stored:
            # Also if nothing would change: the store is asked whether that is so still.
            parts: Parts = {
                **publication.settings(board, folder, deadline=plan.deadline, gpus=gpus),
                "timing": timing,
                "tolerance": tolerance,
                "open_code": open_code,
            }
            store.update_board(**parts, force=force)
    if as_json:
        out_json(plan.to_json())
    else:
        out(render.import_page([plan], stored=stored))
    if plan.changes_evaluator:
        raise BoardError(other_evaluator(board, plan.submissions))
    if plan.needs_force and not force:
        changed = ", ".join(change.key for change in plan.changes if change.needs_force)
        raise BoardError(
            f"leaderboard {board!r} has {plan.submissions} submissions and {changed} would change: old and new scores "
            "would not compare; give --force, or create another leaderboard"
        )
    if stored:
        _warn(folder, demand.timing)
        note(f"leaderboard {board} is updated: it {_state(gpus, plan.deadline)}")


@commands.command(
    "import",
    epilog=example(
        "kernel-runner leaderboard import tasks/problems/nvfp4.yaml --dry-run\n"
        "= nvfp4_gemv: unchanged\n"
        "~ nvfp4_gemm: would be updated\n"
        "    files.reference.py: +3 -1 lines   needs --force (12 submissions)\n"
        "    test_timeout: 180 → 240\n"
        "+ nvfp4_dual_gemm: would be created on B200 until 2030-06-30 18:00:00 UTC",
    ),
)
def import_competition(
    context: typer.Context,
    *,
    file: Annotated[
        Path,
        typer.Argument(metavar="COMPETITION.yaml", exists=True, dir_okay=False),
    ],
    judged: Annotated[
        bool,
        typer.Option("--judged", help="Take a shipped task, which the judge decides, by the board's name."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Store incomparable changes too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create or update all leaderboards of a KernelBot competition file.

    If a change needs --force, as for `leaderboard update`, nothing is stored on any leaderboard (exit code 2, in a dry
    run too). An existing leaderboard keeps its GPU types, as in KernelBot, and its deadline if the file names none; a
    new one is open for a year. A problem is skipped if neither the file nor task.yml names a GPU type.

    A checkout of public problems has eval programs, which judge themselves. With --judged a board that
    `tasks/problems/*.yaml` have, too, gets the folder from there, with the file's GPU types and deadline; a line for
    each board says which it got. A board that has submissions keeps its evaluator.
    """
    shipped = Path(tasks.__file__).parent / "problems" if judged else None
    problems = load_competition(file, judged=shipped)
    with session(context).open(BoardStore) as store:
        plans = _plans(store, session(context).config.gpus_dir, problems)
        if judged:
            plans = [_with_judge(*pair) for pair in zip(plans, problems, strict=True)]
        refusal = _refusal(plans, force=force)
        stored = not dry_run and refusal is None
        for plan in plans if stored else ():
            publication.carry_out(store, plan, force=force)
    if as_json:
        out_json([plan.to_json() for plan in plans])
    else:
        out(render.import_page(plans, stored=stored))
    if refusal is not None:
        raise refusal


def _state(gpus: Sequence[str], deadline: datetime) -> str:
    if deadline <= datetime.now(UTC):
        return f"is closed: its deadline {moment(deadline)} UTC has passed"
    return f"is open on {', '.join(gpus)} until {moment(deadline)} UTC"


def _plans(store: BoardStore, gpus_dir: Path | None, problems: Sequence[Problem]) -> Sequence[BoardPlan]:
    """What to do about each problem; every GPU type is resolved before the first board is stored."""
    present = {line.name for line in store.boards()}
    lifetime_end = datetime.now(UTC) + DEFAULT_LIFETIME
    plans = []
    for problem in problems:
        named = problem.gpus or problem.folder.gpus
        plans.append(
            plan_board(
                problem,
                present=store.board(problem.name) if problem.name in present else None,
                gpus=publication.offered(store, gpus_dir, problem.folder, named, problem.name) if named else (),
                lifetime_end=lifetime_end,
            )
        )
    return plans


def _with_judge(plan: BoardPlan, problem: Problem) -> BoardPlan:
    """The plan, with a remark on who judges the board."""
    if problem.judged is not None:
        judge = f"judged: tasks/problems/{problem.judged.name} in place of the file's folder"
    elif problem.folder.task.harness is Harness.BUILTIN:
        judge = "judged: the file's folder"
    else:
        judge = "not judged: its own eval program decides, as no shipped board has this name"
    return replace(plan, remark="; ".join(filter(None, (judge, plan.remark))))


def _refusal(plans: Sequence[BoardPlan], *, force: bool) -> BoardError | None:
    """Why an import is refused before anything is stored; None if it is not."""
    other = [other_evaluator(plan.name, plan.submissions) for plan in plans if plan.changes_evaluator]
    if other:
        return BoardError("\n".join(other))
    if force:
        return None
    refused = [
        f"{plan.name} ({plan.submissions} submissions; "
        f"{', '.join(change.key for change in plan.changes if change.needs_force)})"
        for plan in plans
        if plan.needs_force
    ]
    if not refused:
        return None
    return BoardError(
        f"nothing is stored: old and new scores would not compare on {', '.join(refused)}; give --force, "
        "or another name in the competition file"
    )


def _warn(folder: TaskFolder, demanded: TimingAssurance | None) -> None:
    """Say so where nothing can rank."""
    if folder.task.harness is Harness.PROGRAM and demanded not in (None, TimingAssurance.CLAIMED):
        note(
            f"{folder.name} is evaluated by its own eval program, whose times are claimed: nothing will rank, since "
            f"--timing is {demanded}"
        )
