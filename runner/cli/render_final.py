"""The order of a final as a table; pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from runner.base.units import moment, score
from runner.cli.render import make_table
from runner.cli.safe import one_line
from runner.store.records import FinalLine, FinalPair


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
