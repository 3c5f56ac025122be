"""`leaderboard final`: evaluates the best submissions of a ranking again, side by side, and shows what that says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from runner.base.units import moment, score
from runner.cli import json_output
from runner.cli.app import ExitCode, example, note, out, out_json, session
from runner.cli.progress import ProgressLine
from runner.cli.render import make_table
from runner.cli.safe import one_line
from runner.cli.wait import wait_until
from runner.store import Store
from runner.store.records import FinalLine, FinalPair, FinalProgress

#: A part of the group `leaderboard`.
commands = typer.Typer()


@commands.command(
    epilog=example(
        "kernel-runner leaderboard final vectoradd --gpu H100 --wait",
        "kernel-runner leaderboard final vectoradd --status",
    )
)
def final(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or number.")],
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="T", help="GPU type; needed where the leaderboard has several.")
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", help="So many of the ranking take part.")] = 10,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", help="At most; fewer, if the order is clear before.")
    ] = 25,
    open_board: Annotated[bool, typer.Option("--open", help="Also while the leaderboard is open.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show how far the newest final is; order none.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the final that runs; order none.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the final to its end, and print its ranking.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Hold a final: evaluate the best submissions of a ranking again, in rounds, and compare them side by side.

    In each round every finalist runs once on every host of the GPU type, in a new order, with one secret seed for all.
    Those who cannot be told apart share a rank (docs/operations.md#finals). Ctrl-C ends the waiting, not the final.
    """
    if status and cancel:
        raise typer.BadParameter("give --status or --cancel, not both", param_hint="--cancel")
    with session(context).store() as store:
        name = store.board_name(name)
        if cancel:
            typer.echo(store.cancel_final(name, gpu))
            return
        if not status:
            order = store.final(name, gpu, top=top, rounds=rounds, open_board=open_board)
            note(f"final {order.final_id} of {one_line(name)}: {order.finalists} finalists on {order.hosts} hosts")
        progress = store.final_progress(name, gpu)
        if wait:
            progress = _follow(store, name, progress.gpu_type)
        lines, pairs = store.final_ranking(name, progress.gpu_type) if progress.status == "completed" else ([], [])
    if as_json:
        places = [json_output.record(line) for line in lines]
        out_json(json_output.record(progress, places=places, pairs=[json_output.record(pair) for pair in pairs]))
    else:
        out(Text(_progress_text(progress)))
        if lines:
            out(final_table(lines, pairs))


def _follow(store: Store, name: str, gpu_type: str) -> FinalProgress:
    try:
        with ProgressLine() as line:
            progress = wait_until(
                lambda: store.final_progress(name, gpu_type),
                lambda progress: progress.status != "running",
                show=lambda progress: line.show(_progress_text(progress)),
                explain=line.show,
            )
    except KeyboardInterrupt:
        note(f"the final goes on; stop it with `kernel-runner leaderboard final {one_line(name)} --cancel`")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    return progress or store.final_progress(name, gpu_type)


def _progress_text(progress: FinalProgress) -> str:
    most = progress.rounds * progress.hosts * (progress.finalists + 1)
    return one_line(
        f"final {progress.final_id} on {progress.gpu_type} is {progress.status}: round {progress.round} of at most "
        f"{progress.rounds}, {progress.evaluations} of at most {most} evaluations"
    )


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
        *(control_text(pair) for pair in pairs if pair.control and pair.final_id == first.final_id),
    ]
    return Group(title, table, *(Text(remark, style="dim") for remark in remarks))


def control_text(pair: FinalPair) -> str:
    """What the control says: the first of the ranking against itself."""
    what = "is told apart from itself" if pair.told_apart else "is not told apart from itself"
    return f"control: number 1 under another name {what} ({pair.wins} of {pair.n} rounds)"
