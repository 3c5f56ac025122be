"""`make bench`: every benchmark, or the ones named, e.g. `make bench ARGS=turnaround`.

A benchmark that is a package has parts, which can be named alone: `make bench ARGS="queue.pickup queue.depth"`. What
follows the first option goes to the benchmark: `make bench ARGS="load --users 10"`. `ARGS=--help` says which there are.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path


def main(names: list[str]) -> int:
    """Run the benchmarks; each module's `main` prints its figures."""
    first = next((index for index, name in enumerate(names) if name.startswith("-")), len(names))
    names, options = names[:first], names[first:]
    known = {
        module.name: module.ispkg
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if not module.name.startswith("_")
    }
    if not names and {"-h", "--help"} & {*options}:
        print(f"{__doc__}\nThere are {_all_of(known)}.")
        return 0
    chosen: dict[str, list[str]] = {}
    for name in names or sorted(known):
        benchmark, _, part = name.partition(".")
        if benchmark not in known or (part and part not in _parts(benchmark)):
            print(f"no such benchmark: {name}; there are {_all_of(known)}", file=sys.stderr)
            return 2
        chosen.setdefault(benchmark, []).extend([part] if part else _parts(benchmark))
    runs = {benchmark: importlib.import_module(f"tests.benchmarks.{benchmark}") for benchmark in chosen}
    for benchmark in runs if options else ():
        if known[benchmark] or not inspect.signature(runs[benchmark].main).parameters:
            print(f"{benchmark} takes no options", file=sys.stderr)
            return 2
    for benchmark, parts in chosen.items():
        print(f"== {benchmark}", flush=True)
        if known[benchmark]:
            runs[benchmark].main(parts)
        elif options:
            runs[benchmark].main(options)
        else:
            runs[benchmark].main()
    return 0


def _parts(benchmark: str) -> list[str]:
    """The parts of a benchmark, in the order they run; none if it is one piece."""
    return list(getattr(importlib.import_module(f"tests.benchmarks.{benchmark}"), "PARTS", ()))


def _all_of(known: Iterable[str]) -> str:
    """The names of all benchmarks and parts, for people."""
    return ", ".join(
        name
        for benchmark in sorted(known)
        for name in (benchmark, *(f"{benchmark}.{part}" for part in _parts(benchmark)))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
