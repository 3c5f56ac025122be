"""`batch`: evaluate many candidates for PyTorch modules, and compute rewards again from results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from runner.base.config import HttpAddress
from runner.base.errors import ConfigError
from runner.base.safe import one_line
from runner.cli.app import ExitCode, Priority, app, example, login_name, note, out, out_json, session
from runner.cli.progress import ProgressLine
from runner.cli.render import make_table
from runner.extras.trainers.client import AsyncClient, Client
from runner.extras.trainers.client.items import scope_of
from runner.extras.trainers.client.results_file import (
    THRESHOLDS,
    ResultsFile,
    by_level,
    read_rows,
    row_of,
    write_kernelbench,
)
from runner.extras.trainers.client.rewards import named
from runner.extras.trainers.client.sources import Entry, Unreadable, read

batch_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Evaluate many candidates for modules.")
app.add_typer(batch_app, name="batch")

_Reward = Annotated[str, typer.Option("--reward", metavar="NAME", help="Reward, e.g. `kevin@1`.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Outstanding = Annotated[
    int, typer.Option("--outstanding", metavar="N", min=1, help="Candidates that wait or run at a time.")
]
#: Unreadable entries that are named.
_NAMED = 5


@batch_app.command(
    epilog=example(
        "kernel-runner batch run candidates.jsonl --gpu H100 --out results.jsonl",
        "kernel-runner batch run KernelBench --candidates KernelBench/runs/mine --gpu H100 --out results.jsonl",
    )
)
def run(
    context: typer.Context,
    *,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", exists=True, help="JSON lines, a folder of problems, or a checkout of KernelBench."
        ),
    ],
    out_file: Annotated[
        Path, typer.Option("--out", metavar="FILE", dir_okay=False, help="Results, a line each; appended to.")
    ],
    gpu: Annotated[str, typer.Option("--gpu", metavar="T", help="GPU type.")],
    candidates: Annotated[
        Path | None,
        typer.Option("--candidates", metavar="DIR", help="A run of KernelBench.", show_default="the only one in runs"),
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="NAME", help="Name of the batch.", show_default="a new one")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="U", help="User id.", show_default="your login name")
    ] = None,
    reward: _Reward = "kernelbook@1",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", metavar="KEY=VALUE", help="Setting (docs/trainers.md), e.g. inputs=3; may be repeated."
        ),
    ] = None,
    group_size: Annotated[int, typer.Option("--group-size", metavar="N", help="Candidates in one job, 1 to 16.")] = 8,
    outstanding: _Outstanding = 512,
    priority: Priority = 0,
    reuse: Annotated[bool, typer.Option("--reuse", help="Answer equal work from the store.")] = False,
    kernelbench: Annotated[
        Path | None,
        typer.Option("--kernelbench", metavar="DIR", file_okay=False, help="Write KernelBench's result folder too."),
    ] = None,
    as_json: _AsJson = False,
) -> int:
    """Evaluate all candidates of SOURCE and show a table by level.

    Stopped and started again, it goes on where it was: lines of the file of results are not evaluated again, and the
    database knows the others by their content. Ends with 1 if some candidate has no result, or some line no candidate.

    JSON lines have `reference` and `candidate`, or `python_code` and `triton_code`; `key`, `name`, `level`,
    `entry_point`, `settings`. A folder has NAME/reference.py and candidates beside it.
    """
    named(reward)
    settings = dict(map(_setting, setting or ()))
    entries, unreadable = _read(source, candidates)
    scope = scope_of(gpu, settings)
    results = ResultsFile(out_file, scope)
    try:
        by_key: dict[str, list[Entry]] = {}
        for entry in entries:
            by_key.setdefault(entry.item.key, []).append(entry)
        # Their own file names what is there; two entries of equal content are one item.
        for same in by_key.values():
            results.require_same(same[0].item)
        missing = [key for key in by_key if key not in results.rows]
        note(f"{len(entries)} candidates, {len(by_key) - len(missing)} of them evaluated already")
        if missing:
            client = Client(
                session(context).config.require_database_url(),
                gpu_type=gpu,
                batch=batch,
                user_id=login_name("say who submits with --user") if user is None else user,
                settings=settings,
                outstanding=outstanding,
                group_size=group_size,
                priority=priority,
                reuse=reuse,
            )
            with client, ProgressLine() as line:
                stream = client.stream([by_key[key][0].item for key in missing])
                for number, result in enumerate(stream, 1):
                    results.add(row_of(by_key[result.key][0], result, reward, scope))
                    if number % 10 == 0 or number == len(missing):
                        line.show(f"{number} of {len(missing)} evaluated")
    except KeyboardInterrupt:
        note("interrupted: what was sent goes on; the same command goes on where it was")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        results.close()
    rows = [
        {**row, "name": entry.name, "level": entry.level, "problem": entry.problem, "sample": entry.sample}
        for key, same in by_key.items()
        if (row := results.rows.get(key)) is not None
        for entry in same
    ]
    lines = by_level(rows, reward)
    if kernelbench is not None:
        texts = {key: entries[0].item.candidate for key, entries in by_key.items()}
        for path in write_kernelbench(kernelbench, rows, texts):
            note(f"written: {path}")
    _show(lines, reward, as_json=as_json)
    whole = not unreadable and not any(line["without_result"] for line in lines)
    return ExitCode.OK if whole else ExitCode.NOT_ACCEPTED


@batch_app.command(epilog=example("kernel-runner batch rewards results.jsonl --reward drkernel@1"))
def rewards(
    *,
    results: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A file of results.")],
    reward: _Reward = "kernelbook@1",
    as_json: _AsJson = False,
) -> None:
    """Compute a reward again from old results, and show the table by level.

    Nothing is evaluated, and no database is needed. Candidates of equal content count once. docs/trainers.md#rewards
    lists the rewards; fast_P@1 takes any number P.
    """
    named(reward)
    _show(by_level(read_rows(results), reward), reward, as_json=as_json)


@batch_app.command(epilog=example("kernel-runner batch kernelgym --gpu H100 --listen 127.0.0.1:10907"))
def kernelgym(
    context: typer.Context,
    *,
    gpu: Annotated[str, typer.Option("--gpu", metavar="T", help="GPU type.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where; it asks for no password.")
    ] = "127.0.0.1:10907",
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="NAME", help="Name of the batch.", show_default="a new one")
    ] = None,
    outstanding: _Outstanding = 512,
) -> None:
    """Serve KernelGYM's HTTP interface over batches, in the foreground (docs/trainers.md).

    Everyone who reaches the address can have code evaluated: let only trainers reach it. SIGTERM or Ctrl-C ends it;
    what was accepted goes on, and the same task ids find it again.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise ConfigError("this needs starlette and uvicorn: install kernel-runner[gateway]")
    try:
        address = HttpAddress.parse(listen, directory=Path())
    except ValueError:
        address = None
    if address is None or address.host is None:
        raise ConfigError(f"--listen is {listen!r}, expected HOST:PORT or [IPV6]:PORT")
    from runner.extras.trainers.client.kernelgym import serve

    dsn = session(context).config.require_database_url()
    serve(AsyncClient(dsn, gpu_type=gpu, batch=batch, outstanding=outstanding), host=address.host, port=address.port)


def _setting(text: str) -> tuple[str, Any]:
    """A setting of the command line: its value is JSON, or else a word."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--setting is {text!r}, expected KEY=VALUE, e.g. baseline=compile")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _read(source: Path, candidates: Path | None) -> tuple[Sequence[Entry], Sequence[Unreadable]]:
    entries: list[Entry] = []
    unreadable: list[Unreadable] = []
    for line in read(source, candidates):
        if isinstance(line, Entry):
            entries.append(line)
        else:
            unreadable.append(line)
    for one in unreadable[:_NAMED]:
        note(one_line(f"{one.name} is left out: {one.reason}"))
    if len(unreadable) > _NAMED:
        note(f"{len(unreadable) - _NAMED} more are left out")
    return entries, unreadable


def _show(lines: Sequence[Mapping[str, Any]], reward: str, *, as_json: bool) -> None:
    if as_json:
        out_json({"reward": reward, "levels": [dict(line) for line in lines]})
        return
    shares = ("compiled", "correct", *(f"fast_{p:g}" for p in THRESHOLDS))
    table = make_table("level", "samples", "no result", *shares, reward, numbers=len(shares) + 3)
    for line in lines:
        table.add_row(
            str(line["level"]),
            str(line["samples"]),
            str(line["without_result"]),
            *("-" if line[share] is None else f"{line[share]:.1%}" for share in shares),
            "-" if line["reward"] is None else f"{line['reward']:.3f}",
        )
    out(table)
