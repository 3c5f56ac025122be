"""The sandbox, measured: `make bench ARGS=sandbox`, or a part: `make bench ARGS=sandbox.deadline`.

    deadline  from the deadline until nothing is left in the container's cgroup, for trees that are hard to kill
    overhead  the time of two kernels in a hardened and in an unhardened container, in turns

Needs an engine and an evaluation environment, as the tests do. Figures: docs/measurements.md#sandbox.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

PARTS = ("deadline", "overhead")


def main(parts: Sequence[str]) -> None:
    """Run the parts; each prints its figures."""
    for part in parts:
        print(f"-- {part}", flush=True)
        importlib.import_module(f"tests.benchmarks.sandbox.{part}").main()
