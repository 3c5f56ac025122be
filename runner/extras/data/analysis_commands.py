"""`data top`, `progression`, `summary`, `user`, `plot`, `publish`: use an exported folder.

Owns the tables; the figures come from `runner.extras.data`, which is imported by the commands only: it needs
the extra `data`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from runner.base import units
from runner.base.environment import forget
from runner.base.errors import NotFoundError
from runner.base.safe import one_line, printable
from runner.cli.app import example, note, out, out_json
from runner.cli.render import listing
from runner.extras.data import require

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="Exported folder, or one of its parquet files.")]
ProblemOption = Annotated[str | None, typer.Option("--problem", metavar="P", help="Only this problem.")]
RunnerOption = Annotated[str | None, typer.Option("--runner", metavar="R", help="Only this runner (GPU).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

#: Columns of times in seconds.
_SCORES: Final = frozenset({"score", "best", "median", "first_score", "best_so_far"})
#: Columns of ratios.
_RATIOS: Final = frozenset({"improvement", "speedup"})
_PROGRESSION: Final = (
    *("submission_id", "submission_time", "user_name", "problem_name", "runner", "status"),
    *("score", "best_so_far", "improvement"),
)


class Kind(StrEnum):
    """The plots."""

    RACE = "race"
    PROGRESSION = "progression"
    DISTRIBUTION = "distribution"


def add_commands(app: typer.Typer) -> None:
    """Register the commands on the sub-application `data`."""
    app.command(epilog=example("kernel-runner data top export --problem vectoradd -n 3"))(top)
    app.command(epilog=example("kernel-runner data progression export --user ada --problem vectoradd"))(progression)
    app.command(epilog=example("kernel-runner data summary export --by-runner"))(summary)
    app.command(epilog=example("kernel-runner data user export ada --json"))(user)
    app.command(
        epilog=example(
            "kernel-runner data plot export --problem vectoradd --output race.svg",
            "kernel-runner data plot export --kind progression --user ada --user grace_h --output users.png",
            "kernel-runner data plot export --problem vectoradd --html report.html",
        )
    )(plot)
    app.command(epilog=example("kernel-runner data publish export gpu-group/kernels-2030 --dry-run"))(publish)


def top(
    *,
    path: PathArgument,
    problem: ProblemOption = None,
    runner: RunnerOption = None,
    count: Annotated[int, typer.Option("-n", min=1, metavar="N", help="Rows per problem and runner.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Rank the users by their best score.

    One ranking per problem and runner. Equal scores share a rank. `submissions` counts the user's rows on that problem
    and runner.
    """
    require()
    from runner.extras.data import analysis
    from runner.extras.data.shipped.analyze_submissions import top_contestants

    rows = analysis.read(path)
    if problem is not None:
        problem = analysis.choose_problem(rows, problem)
        rows = rows[rows["problem_name"] == problem]
    if runner is not None:
        runner = analysis.choose_runner(rows, runner)
    _print(analysis.records(top_contestants(rows, problem, count, runner)), as_json=as_json)


def progression(
    *,
    path: PathArgument,
    user: Annotated[str, typer.Option("--user", metavar="U", help="User id or name.")],
    problem: ProblemOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one user's submissions in the order of time.

    `best_so_far` is the user's least score on that problem and runner until then, `improvement` the best before divided
    by the score.
    """
    require()
    from runner.extras.data import analysis
    from runner.extras.data.shipped.analyze_submissions import author_progression

    rows = analysis.read(path)
    if problem is not None:
        problem = analysis.choose_problem(rows, problem)
    attempts = author_progression(rows, analysis.choose_user(rows, user), problem_name=problem)
    if attempts.empty:
        raise NotFoundError(f"{printable(user)} has no submission on {problem}")
    _print(analysis.records(attempts), as_json=as_json, columns=_PROGRESSION)


def summary(
    *,
    path: PathArgument,
    by_runner: Annotated[
        bool, typer.Option("--by-runner", help="One row per problem and runner, of rows with a score only.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show figures of each problem.

    `median` is the median of the users' best scores. Scores of different runners do not compare.
    """
    require()
    from runner.extras.data import analysis
    from runner.extras.data.shipped.analyze_submissions import leaderboard_summary

    figures = leaderboard_summary(analysis.read(path), by_runner=by_runner)
    _print(analysis.records(figures), as_json=as_json)


def user(
    *,
    path: PathArgument,
    who: Annotated[str, typer.Argument(metavar="USER", help="User id or name.")],
    as_json: JsonOption = False,
) -> None:
    """Show one user's figures per problem and runner.

    A line without a runner counts what never ranked. `speedup` is the first score divided by the best.
    """
    require()
    from runner.extras.data import analysis
    from runner.extras.data.shipped.analyze_submissions import user_stats

    rows = analysis.read(path)
    _print(analysis.records(user_stats(rows, analysis.choose_user(rows, who))), as_json=as_json)


def plot(
    *,
    path: PathArgument,
    kind: Annotated[Kind, typer.Option("--kind", help="What to draw.")] = Kind.RACE,
    problem: Annotated[
        str | None, typer.Option("--problem", metavar="P", help="Problem.", show_default="the only one")
    ] = None,
    runner: Annotated[
        str | None,
        typer.Option("--runner", metavar="R", help="Runner (GPU).", show_default="the only one; in a report all"),
    ] = None,
    users: Annotated[
        list[str] | None,
        typer.Option(
            "--user", metavar="U", help="For `progression`: user id or name; repeatable, at most seven times."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("-n", min=1, max=28, metavar="N", help="How many users.", show_default="by the kind")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Picture to write: .png or .svg.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a report of the board with every plot.")
    ] = None,
) -> None:
    """Draw the submissions of one problem on one runner.

    - `race`: the best users over time, and the board's record

    - `progression`: some users' scores and records, and their attempts that did not rank; without --user the best five

    - `distribution`: how many scores lie where

    Times are on logarithmic axes. PNG pictures are 1200 pixels wide. A report is one file that loads nothing from
    elsewhere.
    """
    if output is None and report is None:
        raise typer.BadParameter("expected a file to write", param_hint="--output or --html")
    if output is not None and output.suffix not in (".png", ".svg"):
        raise typer.BadParameter(f"found {str(output)!r}, expected a name with .png or .svg", param_hint="--output")
    require("matplotlib")
    # A shell in a notebook hands on that of the notebook, which need not be here; pictures are drawn without one.
    forget("MPLBACKEND")
    from runner.extras.data import analysis, plots
    from runner.extras.data import report as reports

    rows = analysis.read(path)
    name = analysis.choose_problem(rows, problem)
    rows = rows[rows["problem_name"] == name]
    if report is not None:
        reports.write(report, reports.report(rows, name, runner=runner).encode())
        note(f"wrote {report}")
    if output is not None:
        board = plots.board_of(rows, name, analysis.choose_runner(rows, runner))
        ids = [analysis.choose_user(board.rows, text) for text in users or ()]
        figure = plots.draw(kind.value, board, users=ids, count=count)
        reports.write(output, plots.to_png(figure) if output.suffix == ".png" else plots.to_svg(figure))
        note(f"wrote {output}")


def publish(
    *,
    path: Annotated[Path, typer.Argument(metavar="DIR", help="Exported folder.")],
    repository: Annotated[str, typer.Argument(metavar="REPOSITORY", help="`USER/NAME` or `ORGANISATION/NAME`.")],
    private: Annotated[
        bool, typer.Option("--private", help="Make a new repository a private one; one that exists stays as it is.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the files, and those that would be removed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish an exported folder as a data set on Hugging Face.

    A private export, one of a leaderboard whose code was not public, one without a licence and one that `data verify`
    finds fault with are refused. Only the files of the manifest are sent, all in one commit. Those that the last export
    had and this one has not are removed from the data set; its history keeps them. Other files are left alone, and what
    has not changed is not sent.

    After an interruption run it again: what has arrived is not sent again. The login is that of `hf auth login`, or
    HF_TOKEN; HF_ENDPOINT names another hub.
    """
    require("huggingface_hub")
    from runner.extras.data import publish as publishing

    folder = publishing.checked(path)
    hub = publishing.hub()
    plan = publishing.plan(folder, repository, api=hub)
    address = None if dry_run else publishing.publish(folder, plan, api=hub, private=private)
    files = list(folder.files)
    if as_json:
        facts = {"repository": repository, "exists": plan.parent is not None, "files": files}
        out_json({**facts, "removed": list(plan.removed), "bytes": folder.size_bytes, "published": address})
        return
    for name in [*(f"+ {path}" for path in files), *(f"- {path}" for path in plan.removed)]:
        typer.echo(one_line(name))
    note(f"{len(files)} files, {units.size(folder.size_bytes)}" + (f": {address}" if address else "; nothing was sent"))


# -- output ----------------------------------------------------------------------------------------------------------


def _print(rows: Sequence[Mapping[str, Any]], *, as_json: bool, columns: Sequence[str] | None = None) -> None:
    """Print rows as JSON or as a table, which has only `columns`."""
    if as_json:
        out_json([{key: _json(value) for key, value in row.items()} for row in rows])
    elif not rows:
        note("nothing was found")
    else:
        shown = [key for key in (columns or rows[0]) if key in rows[0]]
        out(listing(shown, [[_cell(key, row[key]) for key in shown] for row in rows]))


def _json(value: object) -> Any:  # noqa: ANN401 a value that json can write
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def _cell(column: str, value: object) -> Text:
    """A cell for people: scores with their unit, numbers to the right, a dash for null."""
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, datetime):
        return Text(units.moment(value))
    if column in _SCORES and isinstance(value, float):
        from runner.extras.data.shipped.analyze_submissions import format_score

        return Text(format_score(value, "auto"), justify="right")
    if column in _RATIOS and isinstance(value, float):
        return Text(f"{value:.2f}×", justify="right")
    if isinstance(value, int | float):
        return Text(str(value), justify="right")
    return Text(one_line(str(value)))
