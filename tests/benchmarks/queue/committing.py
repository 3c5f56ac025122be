"""What the second committing thread costs while no commit hangs: jobs a second with it and without, in turns.

That it helps where a commit hangs is a test (`tests/unit/daemon/outcomes/test_writer.py`); this is the other side.
"""

from __future__ import annotations

import resource
import statistics
from typing import Final

from tests.benchmarks.queue import ours
from tests.benchmarks.queue.contenders import contender
from tests.benchmarks.queue.figures import Figure
from tests.benchmarks.queue.server import Server
from tests.benchmarks.queue.throughput import SLOTS, drain

ROUNDS: Final = 6
JOBS: Final = 2000


def measure(server: Server) -> list[Figure]:
    """Jobs a second and the daemons' processor time, start and end included; ratios of runs in turns."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    cpus: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS):
        for late in (True, False) if number % 2 else (False, True):
            began_s = _children_s()
            found = drain(server, contender("ours", slots=SLOTS, late=late), ours.preload, JOBS)
            rates[late].append(found.jobs_per_s)
            cpus[late].append(_children_s() - began_s)
            name = "two" if late else "one"
            print(f"  round {number + 1}, {name}: {rates[late][-1]:.0f} jobs/s, {cpus[late][-1]:.2f} s", flush=True)
    return [
        Figure(
            name=f"{what}, two committing threads over one, median of {ROUNDS} pairs",
            unit="times",
            ours=statistics.median(two / one for two, one in zip(pairs[True], pairs[False], strict=True)),
        )
        for what, pairs in (("jobs a second", rates), ("daemons' processor time", cpus))
    ]


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
