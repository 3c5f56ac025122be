"""`leaderboard`: publish tasks, change them, look at rankings.

Reads task folders through `runner.task_format`, which refuses what is wrong before anything is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from runner.cli import json_output, render
from runner.cli.app import app, example, note, out, out_json, session
from runner.cli.competition import Action, BoardPlan, plan_board, plan_update
from runner.cli.units import moment
from runner.errors import BoardError, NotFoundError, TaskError
from runner.gpu_types import Registry
from runner.model import DEMANDABLE, TOLERANCES, Demand, TimingAssurance
from runner.store import Store
from runner.store.records import BoardView
from runner.task_format import extra_to_stored, load, load_competition, to_stored
from runner.task_format.model import Harness, Lang, Problem, TaskFolder

#: A board without a deadline gets this long (KernelBot's rule).
DEFAULT_LIFETIME = timedelta(days=365)
_DEADLINE_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M")

leaderboard = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Leaderboards: publish tasks and look at rankings."
)
app.add_typer(leaderboard, name="leaderboard")

NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
SourceArgument = Annotated[Path, typer.Argument(metavar="DIR_OR_ZIP", exists=True)]
GpuOption = Annotated[list[str] | None, typer.Option("--gpu", metavar="T", help="GPU type; repeatable.")]
DeadlineOption = Annotated[
    str | None, typer.Option("--deadline", metavar="D", help="`YYYY-MM-DD` or `'YYYY-MM-DD HH:MM'`, UTC.")
]
TimingOption = Annotated[
    str | None,
    typer.Option("--timing", metavar="A", help="What a time needs to rank: `claimed`, `measured` or `audited`."),
]
ToleranceOption = Annotated[
    str | None,
    typer.Option(
        "--tolerance",
        metavar="F",
        help="How closely the judge's clock bounds an audited time: 0.01 to 0.5 of it.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_deadline(text: str) -> datetime:
    """A deadline as people write it, in UTC; a day without a time means its first minute.

    Raises:
        typer.BadParameter: neither form fits.
    """
    for form in _DEADLINE_FORMATS:
        try:
            return datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise typer.BadParameter(
        f"found {text!r}, expected YYYY-MM-DD or 'YYYY-MM-DD HH:MM' (UTC)", param_hint="--deadline"
    )


def parse_timing(text: str) -> TimingAssurance:
    """What a leaderboard is to demand.

    Raises:
        typer.BadParameter: no leaderboard can demand that.
    """
    found = next((timing for timing in DEMANDABLE if timing.value == text.strip()), None)
    if found is None:
        raise typer.BadParameter(f"found {text!r}, expected {', '.join(DEMANDABLE)}", param_hint="--timing")
    return found


def parse_tolerance(text: str) -> float:
    """How closely a time is to be bounded, as a part of it.

    Raises:
        typer.BadParameter: no number, or none that a leaderboard can ask for.
    """
    low, high = TOLERANCES
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not low <= found <= high:
        raise typer.BadParameter(
            f"found {text!r}, expected a number from {low} to {high} (0.1 is 10 %)", param_hint="--tolerance"
        )
    return found


@leaderboard.command(
    epilog=example("kernel-runner leaderboard create tasks/vectoradd --gpu CPU --deadline '2031-06-30 18:00'")
)
def create(
    context: typer.Context,
    *,
    source: SourceArgument,
    name: Annotated[
        str | None, typer.Option("--name", metavar="N", help="Leaderboard.", show_default="the folder's name")
    ] = None,
    gpu: GpuOption = None,
    deadline: DeadlineOption = None,
    timing: TimingOption = None,
    tolerance: ToleranceOption = None,
) -> None:
    """Publish a task as a new leaderboard.

    Nothing is stored unless the whole folder is right. Without options it has the GPU types of task.yml, is open for a
    year, and ranks every time (`claimed`, tolerance 0.1). Its name has no white space.

    A time worth less than --timing passes and does not rank (docs/frontends.md#what-a-time-is-worth). A task with its
    own eval program has `claimed` times only: if more is demanded, nothing ranks.
    """
    ends = parse_deadline(deadline) if deadline is not None else datetime.now(UTC) + DEFAULT_LIFETIME
    demanded = None if timing is None else parse_timing(timing)
    within = None if tolerance is None else parse_tolerance(tolerance)
    folder = load(source)
    board = name or folder.name
    with session(context).store() as store:
        gpus = _offered(context, store, gpu or folder.gpus, board)
        _create(store, board, folder, ends, gpus, timing=demanded, tolerance=within)
    _warn(folder, demanded)
    for emulating in _emulating(context, gpus):
        note(f"{emulating} emulates CUDA: submissions are tested and timed there, and not ranked")
    note(f"leaderboard {board} {_state(gpus, ends)}")


@leaderboard.command(
    epilog=example(
        "kernel-runner leaderboard update tasks/vectoradd --timing audited --tolerance 0.05 --dry-run",
    )
)
def update(
    context: typer.Context,
    *,
    source: SourceArgument,
    name: Annotated[
        str | None, typer.Option("--name", metavar="N", help="Leaderboard.", show_default="the folder's name")
    ] = None,
    gpu: GpuOption = None,
    deadline: DeadlineOption = None,
    timing: TimingOption = None,
    tolerance: ToleranceOption = None,
    force: Annotated[bool, typer.Option("--force", help="Store incomparable changes too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Replace a leaderboard's task, and show what changed.

    Options that are not given stay as they are. A new --timing applies to earlier results at once, a new --tolerance to
    runs that are claimed later.

    If there are submissions, changes that make scores incomparable need --force; without it nothing is stored. They
    are, in task.yml, `files`, `config`, `lang` and `benchmarks`, as in KernelBot; in runner.yml, `harness` (if another
    one then evaluates), `private`, and `benchmarks` in `cases` of the leaderboard's GPU types.
    """
    ends = None if deadline is None else parse_deadline(deadline)
    demanded = None if timing is None else parse_timing(timing)
    within = None if tolerance is None else parse_tolerance(tolerance)
    folder = load(source)
    board = name or folder.name
    with session(context).store() as store:
        present = store.board(board)
        gpus = _offered(context, store, gpu or present.gpus, board)
        demand = Demand(
            timing=demanded or present.demand.timing,
            tolerance=present.demand.tolerance if within is None else within,
        )
        plan = plan_update(board, folder, present=present, deadline=ends or present.deadline, gpus=gpus, demand=demand)
        stored = not dry_run and (force or not plan.needs_force)
        if stored:
            # Also if nothing would change: the store is asked whether that is so still.
            _update(store, board, folder, plan.deadline, gpus, force=force, timing=demanded, tolerance=within)
    if as_json:
        out_json(plan.to_json())
    else:
        out(render.import_page([plan], stored=stored))
    if plan.needs_force and not force:
        changed = ", ".join(change.key for change in plan.changes if change.needs_force)
        raise BoardError(
            f"leaderboard {board!r} has {plan.submissions} submissions and {changed} would change: old and new scores "
            "would not compare; give --force, or create another leaderboard"
        )
    if stored:
        _warn(folder, demand.timing)
        note(f"leaderboard {board} is updated: it {_state(gpus, plan.deadline)}")


@leaderboard.command(
    "import",
    epilog=example(
        "kernel-runner leaderboard import tasks/nvfp4.yaml --dry-run\n"
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
    force: Annotated[bool, typer.Option("--force", help="Store incomparable changes too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create or update all leaderboards of a KernelBot competition file.

    If a change needs --force, as for `leaderboard update`, nothing is stored on any leaderboard (exit code 2, in a dry
    run too). An existing leaderboard keeps its GPU types, as in KernelBot, and its deadline if the file names none; a
    new one is open for a year. A problem is skipped if neither the file nor task.yml names a GPU type.
    """
    competition = load_competition(file)
    for sentence in competition.notes:
        note(sentence)
    with session(context).store() as store:
        plans = _plans(context, store, competition.problems)
        refusal = None if force else _refusal(plans)
        stored = not dry_run and refusal is None
        for plan in plans if stored else ():
            _carry_out(store, plan, force=force)
    if as_json:
        out_json([plan.to_json() for plan in plans])
    else:
        out(render.import_page(plans, stored=stored))
    if refusal is not None:
        raise refusal


@leaderboard.command("list", epilog=example("kernel-runner leaderboard list"))
def list_boards(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the leaderboards.

    Open ones come first; `ranks` says which times rank.
    """
    with session(context).store() as store:
        boards = store.boards()
    if as_json:
        out_json(json_output.boards(boards))
    else:
        out(render.boards_table(boards))


@leaderboard.command(epilog=example("kernel-runner leaderboard show vectoradd"))
def show(
    context: typer.Context,
    *,
    name: NameArgument,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="T", help="Only this GPU type; aliases work.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the ranking of a leaderboard, one table per GPU type.

    A user's best score counts, if the secret run of the same submission passed. The first line says which times rank;
    each score shows what it is worth (docs/frontends.md#what-a-time-is-worth).
    """
    with session(context).store() as store:
        board = store.board(name)
        chosen = None if gpu is None else _of_board(context, board, gpu)
        lines = store.ranking(name, chosen)
    if as_json:
        out_json(json_output.ranking(lines))
    else:
        out(render.ranking_page(name, (chosen,) if chosen else board.gpus, lines, demand=board.demand))


@leaderboard.command(epilog=example("kernel-runner leaderboard personal vectoradd --user alice"))
def personal(
    context: typer.Context,
    *,
    name: NameArgument,
    user: Annotated[str, typer.Option("--user", metavar="U", help="User id.")],
    as_json: JsonOption = False,
) -> None:
    """Show one user's ranked submissions.

    All that count, per GPU type, the fastest first.
    """
    with session(context).store() as store:
        board = store.board(name)
        lines = store.personal(name, user)
    if as_json:
        out_json(json_output.ranking(lines))
    else:
        out(render.ranking_page(f"{name}, {user}", board.gpus, lines))


@leaderboard.command(epilog=example("kernel-runner leaderboard task vectoradd reference.py"))
def task(
    context: typer.Context,
    *,
    name: NameArgument,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="A file of the task to print.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a leaderboard's task, or print one of its files.

    The secret seed is never shown.
    """
    with session(context).store() as store:
        board = store.board(name)
    if file is not None:
        typer.echo(_file(board, file), nl=False)
    elif as_json:
        out_json(json_output.board(board))
    else:
        out(render.board_page(board))


@leaderboard.command(epilog=example("kernel-runner leaderboard template vectoradd Python > mine.py"))
def template(
    context: typer.Context,
    *,
    name: NameArgument,
    language: Annotated[
        str, typer.Argument(metavar="LANG", help="Python, Triton, CUDA, HIP or CuteDSL, if the task has it.")
    ],
) -> None:
    """Print a leaderboard's template.

    Its first line names the leaderboard, so `submit` needs no --leaderboard.
    """
    with session(context).store() as store:
        board = store.board(name)
    by_name = {key.lower(): key for key in board.templates}
    key = by_name.get(language.lower())
    if key is None:
        offered = ", ".join(sorted(board.templates)) or "none"
        raise NotFoundError(f"leaderboard {name!r} has no template for {language!r}, it has {offered}")
    typer.echo(with_directive(board.templates[key], name, lang=str(board.task.get("lang", "py"))), nl=False)


def with_directive(text: str, board: str, *, lang: str) -> str:
    """The template with a first line that names its leaderboard, unless it has one.

    Args:
        text: the template.
        board: the leaderboard's name.
        lang: the task's language. A template for CUDA may well be Python with inline sources; `lang` decides.
    """
    directives = (line.split() for line in text.splitlines() if line.startswith(("#!POPCORN", "//!POPCORN")))
    if any(words[1:2] == ["leaderboard"] for words in directives):
        return text
    return f"{'//' if lang == Lang.CU else '#'}!POPCORN leaderboard {board}\n{text}"


@leaderboard.command(epilog=example("kernel-runner leaderboard pause vectoradd --reason 'the reference is wrong'"))
def pause(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="BOARD")],
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="Those who wait read it.")],
) -> None:
    """Let no host begin jobs of a leaderboard.

    What runs goes on, and submissions are still taken. It holds on all GPU types until `leaderboard resume`.
    """
    with session(context).store() as store:
        changed = store.pause_board(name, reason=reason)
    note(f"leaderboard {name} {'is paused' if changed else 'was paused already'}")


@leaderboard.command(epilog=example("kernel-runner leaderboard resume vectoradd"))
def resume(context: typer.Context, *, name: Annotated[str, typer.Argument(metavar="BOARD")]) -> None:
    """Let hosts begin jobs of a paused leaderboard again.

    Their daemons look at the queue at once.
    """
    with session(context).store() as store:
        changed = store.resume_board(name)
    note(f"leaderboard {name} {'is served again' if changed else 'was not paused'}")


@leaderboard.command(epilog=example("kernel-runner leaderboard delete vectoradd --force"))
def delete(
    context: typer.Context,
    *,
    name: NameArgument,
    force: Annotated[bool, typer.Option("--force", help="Delete submissions and results too.")] = False,
) -> None:
    """Delete a leaderboard.

    If it has submissions, --force is required.
    """
    with session(context).store() as store:
        store.delete_board(name, force=force)
    note(f"leaderboard {name} is deleted")


def _state(gpus: Sequence[str], deadline: datetime) -> str:
    if deadline <= datetime.now(UTC):
        return f"is closed: its deadline {moment(deadline)} UTC has passed"
    return f"is open on {', '.join(gpus)} until {moment(deadline)} UTC"


def _of_board(context: typer.Context, board: BoardView, name: str) -> str:
    """The board's GPU type that a name or alias means.

    Raises:
        NotFoundError: the board does not have it.
    """
    found = name
    if name not in board.gpus:
        found = Registry.load(session(context).config.gpus_dir).get(name).name
    if found not in board.gpus:
        raise NotFoundError(f"leaderboard {board.name!r} is not ranked on {found}, expected {', '.join(board.gpus)}")
    return found


def _plans(context: typer.Context, store: Store, problems: Sequence[Problem]) -> Sequence[BoardPlan]:
    """What to do about each problem; every GPU type is resolved before the first board is stored."""
    known = {line.name for line in store.boards()}
    lifetime_end = datetime.now(UTC) + DEFAULT_LIFETIME
    plans = []
    for problem in problems:
        named = problem.gpus or problem.folder.gpus
        plans.append(
            plan_board(
                problem,
                present=store.board(problem.name) if problem.name in known else None,
                gpus=_offered(context, store, named, problem.name) if named else (),
                lifetime_end=lifetime_end,
            )
        )
    return plans


def _refusal(plans: Sequence[BoardPlan]) -> BoardError | None:
    """Why an import is refused without --force before anything is stored; None if it is not."""
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


def _carry_out(store: Store, plan: BoardPlan, *, force: bool) -> None:
    match plan.action:
        case Action.CREATE:
            _create(store, plan.name, plan.folder, plan.deadline, plan.gpus)
        case Action.UPDATE:
            _update(store, plan.name, plan.folder, plan.deadline, plan.gpus, force=force)


def _warn(folder: TaskFolder, demanded: TimingAssurance | None) -> None:
    """Say so where nothing can rank."""
    if folder.task.harness is Harness.PROGRAM and demanded not in (None, TimingAssurance.CLAIMED):
        note(
            f"{folder.name} is evaluated by its own eval program, whose times are claimed: nothing will rank, since "
            f"--timing is {demanded}"
        )


def _create(
    store: Store,
    name: str,
    folder: TaskFolder,
    deadline: datetime,
    gpus: Sequence[str],
    *,
    timing: TimingAssurance | None = None,
    tolerance: float | None = None,
) -> None:
    if len(name.split()) != 1:
        raise TaskError(
            f"leaderboard name is {name!r}, expected no white space: a file names it in `#!POPCORN leaderboard NAME`"
        )
    store.create_board(
        name=name,
        deadline=deadline,
        task=to_stored(folder.task),
        description=folder.description,
        gpus=gpus,
        templates=folder.templates,
        extra=extra_to_stored(folder.task.extra),
        timing=timing,
        tolerance=tolerance,
    )


def _update(
    store: Store,
    name: str,
    folder: TaskFolder,
    deadline: datetime,
    gpus: Sequence[str],
    *,
    force: bool,
    timing: TimingAssurance | None = None,
    tolerance: float | None = None,
) -> None:
    store.update_board(
        name=name,
        deadline=deadline,
        task=to_stored(folder.task),
        description=folder.description,
        gpus=gpus,
        templates=folder.templates,
        extra=extra_to_stored(folder.task.extra),
        force=force,
        timing=timing,
        tolerance=tolerance,
    )


def _offered(context: typer.Context, store: Store, names: Sequence[str], board: str) -> tuple[str, ...]:
    """The canonical names of GPU types, in order, without repetition.

    Raises:
        TaskError: none are given.
        NotFoundError: neither the registry here nor any daemon knows a name.
    """
    if not names:
        raise TaskError(f"leaderboard {board!r}: no GPU type; give --gpu, or `gpus` in task.yml")
    # A host's own overlay may define types that this machine has never heard of.
    announced = {line.name for line in store.gpu_types()}
    registry = Registry.load(session(context).config.gpus_dir)
    return tuple(dict.fromkeys(name if name in announced else registry.get(name).name for name in names))


def _emulating(context: typer.Context, names: Sequence[str]) -> Sequence[str]:
    """Which GPU types emulate a device, as far as is known here."""
    known = Registry.load(session(context).config.gpus_dir).all()
    return [entry.name for entry in known if entry.emulate_cuda and entry.name in names]


def _file(board: BoardView, name: str) -> str:
    files = board.task.get("files", {})
    if name not in files:
        raise NotFoundError(
            f"the task of leaderboard {board.name!r} has no file {name!r}, it has {', '.join(sorted(files))}"
        )
    return str(files[name])
