"""A real final of two kernels whose work differs by 5 per cent, through daemon, queue and containers, to its end.

Prints for each pair who was faster how often, and how the ratio spreads, by lower quartiles, which decide, and by mean
times.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import psycopg

from tests.benchmarks._live import accepted, database
from tests.plugins.live import ROOT, live_runner
from tests.support import sweeps
from tests.support.waiting import wait_until

#: Additions of each kernel.
WORK: Final = (100, 105)
ROUNDS: Final = 25
KERNEL: Final = """
import torch
def custom_kernel(data):
    a, b = data
    c = torch.empty_like(a)
    for _ in range({work}):
        torch.add(a, b, out=c)
    return c
# {number}
"""
SCORES: Final = """
SELECT array_agg(ln(t.p25 / s.p25)), array_agg(ln(t.score / s.score))
FROM runner.final_score s JOIN runner.final_score t USING (final_id, round, host)
WHERE s.number = %s AND t.number = %s
"""


def main() -> None:
    """Hold the final and print."""
    with database("finals") as url, live_runner(url) as live:
        live.board(ROOT / "tasks" / "problems" / "vectoradd", name="board")
        for number, units in enumerate(WORK):
            code = KERNEL.format(work=units, number=number).encode()
            accepted(live.wait(live.submit("board", code, mode="leaderboard", user_id=f"user{number}")))
        sweeps.final(live.store, "board", None, top=len(WORK), rounds=ROUNDS, open_board=True)
        wait_until(
            lambda: sweeps.final_progress(live.store, "board")["status"] != "running",
            "the final is over",
            patience_s=7200,
            pause_s=1,
        )
        rounds = sweeps.final_progress(live.store, "board")["round"]
        lines, pairs = live.store.final_ranking("board")
        with psycopg.connect(url) as connection:
            logs = [connection.execute(SCORES, [pair.first, pair.second]).fetchone() for pair in pairs]
    print(f"{rounds} rounds, ranks {[(line.rank, WORK[line.submission_id - 1]) for line in lines]}")
    for pair, each in zip(pairs, logs, strict=True):
        print("control:" if pair.control else "5 per cent:", "told apart" if pair.told_apart else "not told apart")
        for what, values in zip(("lower quartile", "mean"), each or (), strict=True):
            ratios = np.array(values)
            wins, median, spread = (ratios > 0).sum(), np.median(ratios), ratios.std(ddof=1)
            print(f"  {what}: {wins} of {len(ratios)}, log ratio {median:.3f}, standard deviation {spread:.3f}")
