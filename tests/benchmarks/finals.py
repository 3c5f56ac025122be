"""A real final of kernels whose work differs by 0, 5 and 100 per cent, through daemon, queue and containers.

Prints who was faster how often, and the ranks. Whoever is told apart must be in the order of their work.
"""

from __future__ import annotations

from runner.store.records import FinalProgress
from tests.benchmarks._live import accepted, database
from tests.plugins.live import ROOT, live_runner
from tests.support.waiting import wait_until

#: Additions of each kernel.
WORK = (100, 100, 105, 200)
ROUNDS = 25
KERNEL = """
import torch
def custom_kernel(data):
    a, b = data
    c = torch.empty_like(a)
    for _ in range({work}):
        torch.add(a, b, out=c)
    return c
# {number}
"""


def main() -> None:
    """Hold the final and print."""
    with database("finals") as url, live_runner(url) as live:
        live.board(ROOT / "tasks" / "problems" / "vectoradd", name="board", timed_calls=20)
        work = {}
        for number, units in enumerate(WORK):
            code = KERNEL.format(work=units, number=number).encode()
            view = live.wait(live.submit("board", code, mode="leaderboard", user_id=f"user{number}"))
            work[accepted(view).submission_id] = units
        live.store.final("board", None, top=len(WORK), rounds=ROUNDS, open_board=True)

        def over() -> FinalProgress | None:
            progress = live.store.final_progress("board")
            return progress if progress.status != "running" else None

        wait_until(over, "the final is over", patience_s=7200, pause_s=1)
        lines, pairs = live.store.final_ranking("board")
    numbers = {line.rank_before: work[line.submission_id] for line in lines}
    numbers[0] = numbers[1]
    for line in lines:
        print(f"rank {line.rank}: {work[line.submission_id]} additions, {line.score_s} s, spread {line.spread_rounds}")
    for pair in pairs:
        first, second = numbers[pair.first], numbers[pair.second]
        faster = first if 2 * pair.wins > pair.n else second
        wrong = pair.told_apart and (first == second or faster != min(first, second))
        names = f"{first} against {second}{' (control)' if pair.control else ''}"
        outcome = ", WRONG" if wrong else ", told apart" if pair.told_apart else ""
        print(f"{names}: {pair.wins} of {pair.n}, ratio {pair.ratio}, error {pair.error:.4f}{outcome}")
