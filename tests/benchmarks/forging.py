"""How short a kernel may be for a claim that is a tenth too low to be noticed; CPU.

`make bench ARGS=forging`. A worker whose clock runs at nine tenths of its speed, and an honest one, with kernels from
5 µs to 2 ms: with the cores to themselves, and while another process keeps one of the worker's cores busy. Caught is
who has gained nothing: the reported median is no more than a twentieth below what an honest worker would have claimed
for the same calls. An honest worker is caught where its claims are contradicted as a whole, so that the judge's own
estimates count; that should never be.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.acceptance.judging.nursery import Nursery, nursery
from tests.benchmarks._judging import FORGED, HONEST, cases_of, judge, machine, request_of, spin_case

SESSIONS = 10
#: The speed of the clock that a forging worker tells its claims from.
PART = 0.9
SPINS_NS = tuple(microseconds * 1000 for microseconds in (5, 10, 15, 20, 30, 50, 100, 200, 500, 1_000, 2_000))
_BUSY = "import os\nos.sched_setaffinity(0, {core})\nwhile True:\n    pass\n"


def main() -> None:
    """Measure and print."""
    print(f"{machine()}; caught in {SESSIONS} sessions each")
    print("| kernel | claims a tenth less | honest | a tenth less, a core busy | honest, a core busy |")
    print("|---|---|---|---|---|")
    columns: list[Counter[int]] = []
    with nursery() as processes:
        for busy in (False, True):
            with _busy_core(busy=busy):
                columns += [_caught(processes, forged=forged) for forged in (True, False)]
    for spin_ns in SPINS_NS:
        counts = " | ".join(f"{column[spin_ns]}" for column in columns)
        print(f"| {spin_ns / 1e3:g} µs | {counts} |", flush=True)


def _caught(processes: Nursery, *, forged: bool) -> Counter[int]:
    """How often a kernel of each time was caught."""
    found: Counter[int] = Counter()
    source = FORGED.format(part=PART) if forged else HONEST
    request = request_of(source, [spin_case(spin_ns) for spin_ns in SPINS_NS])
    for _ in range(SESSIONS):
        for spin_ns, case in zip(SPINS_NS, cases_of(judge(processes, request)), strict=True):
            gained_nothing = case.number("median") >= 0.95 * case.details["claimed_median_ns"] / PART
            found[spin_ns] += gained_nothing if forged else bool(case.details["contradicted"])
    return found


@contextmanager
def _busy_core(*, busy: bool) -> Iterator[None]:
    """Something else on the first core, which is one of the worker's."""
    if not busy:
        yield
        return
    core = {min(os.sched_getaffinity(0))}
    with subprocess.Popen([sys.executable, "-c", _BUSY.format(core=core)]) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    main()
