"""The queue, measured: `make bench ARGS=queue`, or one part of it, e.g. `make bench ARGS=queue.throughput`.

All parts run on one freshly made PostgreSQL; where there is something to compare, two other Python queues on
PostgreSQL, procrastinate and pgqueuer, run in turns with ours on the same server.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from tests.benchmarks.queue.figures import Figure, machine, table
from tests.benchmarks.queue.server import server

PARTS = ("pickup", "throughput", "depth", "recovery", "site")


def main(parts: Sequence[str] = ()) -> None:
    """Measure these parts, by default all, and print one table."""
    figures: list[Figure] = []
    about = machine()
    with server() as running:
        for name, value in {**about, **running.settings()}.items():
            print(f"{name}: {value}")
        for part in parts or PARTS:
            print(f"-- {part}", flush=True)
            found = importlib.import_module(f"{__name__}.{part}").measure(running)
            print(table(found), flush=True)
            figures += found
    print("-- all")
    print(table(figures))
