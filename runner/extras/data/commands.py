"""`data`: export what competitions produced, verify an export, check what the database holds.

What these commands do lies in `runner.extras.data`, which needs the extra `data`; it is imported when a command runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from runner.base.safe import one_line
from runner.cli.app import ExitCode, app, direct_url, example, note, out, out_json, session
from runner.cli.render import listing
from runner.extras.data import analysis_commands, require
from runner.extras.data.people import Exclusions, Identity, read_exclusions, read_key
from runner.extras.receipts import keys_in
from runner.extras.stages import stages

if TYPE_CHECKING:
    from runner.extras.data.check import Report

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Export and analyse what was submitted.")
app.add_typer(data_app, name="data")

_Leaderboards = Annotated[
    list[str] | None, typer.Option("--leaderboard", metavar="L", help="Name or number; repeatable. Without it, all.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
#: Submissions that a table names per check.
_NAMED = 5


@data_app.command(
    epilog=example(
        "kernel-runner data export nvfp4 --leaderboard nvfp4_gemv --leaderboard nvfp4_gemm --name nvidia_nvfp4 "
        "--licence cc-by-4.0",
        "kernel-runner data export /srv/backup/data --private",
    )
)
def export(
    context: typer.Context,
    *,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder, or an export to renew.")],
    leaderboard: _Leaderboards = None,
    private: Annotated[
        bool, typer.Option("--private", help="Open and closed leaderboards too; not to be published.")
    ] = False,
    licence: Annotated[
        str | None, typer.Option("--licence", metavar="ID", help="Licence of a public export, e.g. cc-by-4.0.")
    ] = None,
    identity: Annotated[
        Identity, typer.Option("--identity", help="Users by id and name, by id, or by a hash with --key.")
    ] = Identity.NAME,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Your key, for pseudonyms and names of hosts.")
    ] = None,
    exclude: Annotated[
        Path | None,
        typer.Option(
            "--exclude", metavar="FILE", help="Lines `user ID` or `submission NUMBER` to leave out; each must be there."
        ),
    ] = None,
    with_receipts: Annotated[
        bool, typer.Option("--receipts", help="Signed statements too, which name hosts and the ids of users.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The flat file is NAME_submissions.parquet.")
    ] = None,
    trust_note: Annotated[
        list[str] | None,
        typer.Option("--note", metavar="L=TEXT", help="What to know before trusting leaderboard L; repeatable."),
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Write submissions, runs, code and leaderboards to parquet files.

    All files are of one moment, and appear in one step: whatever ends the command, DIR holds the old export or the new
    one.

    An export is public unless --private is given: leaderboards whose code is not public are refused, and
    --licence is required. No file has output, cases or seeds of secret runs, or login tokens. Receipts name hosts.
    """
    require()
    from runner.extras.data.choice import Options
    from runner.extras.data.export import export

    options = Options(
        target=directory,
        boards=tuple(leaderboard or ()),
        private=private,
        licence=licence,
        identity=identity,
        key=None if key is None else read_key(key),
        exclusions=Exclusions() if exclude is None else read_exclusions(exclude),
        receipts=with_receipts,
        name=name,
        notes=_notes(trust_note or ()),
    )
    with stages() as progress:
        done = export(direct_url(session(context).config), options, progress)
    counts = {
        "rows": sum(board["rows"] for board in done["boards"]),
        "ranked": sum(board["ranked"] for board in done["boards"]),
        "codes": sum(file["rows"] for file in done["files"] if file["path"].startswith("code/")),
        "bytes": sum(file["bytes"] for file in done["files"]),
    }
    if as_json:
        facts = {name: done[name] for name in ("flat", "exported_at", "content_sha256", "excluded")}
        out_json({"directory": str(directory.resolve()), **counts, **facts})
        return
    size = f"{counts['bytes'] / 1e6:.1f} MB"
    note(f"{counts['rows']} rows, {counts['ranked']} of them ranked; {counts['codes']} codes; {size}")
    typer.echo(directory.resolve() / done["flat"])


@data_app.command(epilog=example("kernel-runner data verify nvfp4"))
def verify(
    *,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="An export.")],
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="Public keys of hosts, as a gateway's /keys.",
            show_default="the export's own",
        ),
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Check that an export is whole; needs no database.

    Files, hashes, schemas and counts are those of the manifest, each row has its code, and each code its row. Receipts
    are signed by the hosts that they name, and say what the rows say. Exit code 1 if something is wrong.
    """
    require()
    from runner.extras.data.verify import signed, verify

    listed = None if keys is None else keys_in(keys)
    with stages() as progress:
        wrong = list(verify(directory, progress, listed))
    with_both, ranked = (0, 0) if wrong else signed(directory)
    if as_json:
        out_json({"directory": str(directory), "wrong": wrong, "ranked": ranked, "signed": with_both})
    elif wrong:
        for line in wrong:
            typer.echo(one_line(line))
    else:
        note(f"{directory} is whole; {with_both} of {ranked} scores have receipts")
    if wrong:
        raise typer.Exit(ExitCode.NOT_ACCEPTED)


@data_app.command(
    epilog=example(
        "kernel-runner data check --leaderboard nvfp4_gemv\n"
        "check           severity   found   what it means                                   submissions\n"
        "──────────────────────────────────────────────────────────────────────────────────────────────────\n"
        "negative        unusable   1       the score is negative                           812\n"
        "code_shared     suspect    3       several users submitted the same code           14, 15, 90"
    )
)
def check(context: typer.Context, *, leaderboard: _Leaderboards = None, as_json: _AsJson = False) -> None:
    """Look for scores, times and code that are unusable or odd.

    Unusable: an export has no score there. Suspect: look at it. Reported: for information. Structural: an export would
    stop. Exit code 1 if something is unusable or structural. --json has every finding with its reason.
    """
    require()
    from runner.extras.data.check import check

    with stages() as progress:
        report = check(direct_url(session(context).config), tuple(leaderboard or ()), progress)
    if as_json:
        out_json(report.to_json())
    else:
        if report.findings:
            out(_table(report))
        note(
            f"{report.rows} rows and {report.codes} codes of {len(report.boards)} leaderboards checked"
            + (", nothing found" * (not report.findings))
        )
    if report.fatal:
        raise typer.Exit(ExitCode.NOT_ACCEPTED)


def _table(report: Report) -> Table:
    from runner.extras.data.check import MEANING

    submissions: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    for finding in report.findings:
        submissions[finding.severity, finding.check].append(finding.submission_id)
    rows: list[list[str | Text]] = []
    for (severity, check), numbers in submissions.items():
        ids = [str(number) for number in sorted({number for number in numbers if number is not None})]
        named = ", ".join(ids[:_NAMED]) + (", …" if len(ids) > _NAMED else "")
        style = {"structural": "bold red", "unusable": "red", "suspect": "yellow"}.get(severity, "dim")
        rows.append([check, Text(severity, style=style), str(len(numbers)), MEANING.get(check, ""), named])
    return listing(("check", "severity", "found", "what it means", "submissions"), rows)


def _notes(texts: Sequence[str]) -> Mapping[str, str]:
    notes = {}
    for text in texts:
        name, equals, trust_note = text.partition("=")
        if not (equals and name.strip() and trust_note.strip()):
            raise typer.BadParameter(f"{text!r} is no note; write LEADERBOARD=TEXT", param_hint="--note")
        notes[name.strip()] = trust_note.strip()
    return notes


analysis_commands.add_commands(data_app)
