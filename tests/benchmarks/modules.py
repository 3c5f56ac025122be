"""How many candidates for modules a second the whole runner evaluates, beside a plain loop; where the time goes.

A client sends groups of eight tiny modules through the queue to a daemon with real containers, 512 of them outstanding.
Each reference is one of its own; each candidate is compared on five inputs and timed in twenty calls. The loop starts
one Python for each candidate and evaluates it in that process beside its reference, as the public evaluators do. It
takes a part of the candidates, half before and half after the groups, with one process and with one for each core.

KERNEL_RUNNER_TEST_EXAMPLES is the number of candidates, 2,000 by default. `make bench ARGS="modules --gpu H100"`
evaluates on this host's slots of a GPU type, without the loop; `--emulate` on an emulated device, whose times are no
device's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from runner.extras.trainers.client import Client, Item, Result
from tests.acceptance.modules.problems import sent
from tests.benchmarks._live import database
from tests.plugins.live import ROOT, LiveRunner, live_runner

CANDIDATES: Final = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "2000"))
GROUP: Final = 8
OUTSTANDING: Final = 512
SETTINGS: Final = {"inputs": 5, "timed_calls": 20}
#: What is asked for: on two cores without a device, and on a host with one device.
TARGET_PER_S: Final = 10.0
TARGET_ON_DEVICE_PER_S: Final = 5.0
#: One candidate in so many is also evaluated by the loop, and at least so many are.
LOOP_PART: Final = 50
LOOP_LEAST: Final = 16
_ONE: Final = (
    "import sys; from pathlib import Path; from tests.acceptance.modules.plain import evaluate; "
    "evaluate(Path(sys.argv[1]).read_text(), Path(sys.argv[2]).read_text())"
)
#: What the phases of a group's report are.
PHASES: Final = {
    "build": "build what compiles",
    "wait": "wait for the slot",
    "container": "start a container",
    "import": "start the judge, measure the hand-over, end",
    "reference": "prepare the reference",
    "worker": "kill, clean and fork a worker",
    "compile": "run the candidate's file",
    "construct": "construct the module",
    "correctness": "compare outputs",
    "timing": "timed calls of the candidate",
    "reference_timing": "timed calls of the reference",
    "done": "results",
    "removal": "remove the container",
}


@dataclass(kw_only=True)
class Loop:
    """What the plain loop did."""

    done: int = 0
    seconds: float = 0.0

    def run(self, items: Sequence[Item], *, at_once: int) -> None:
        """Evaluate items, each in a Python of its own."""
        began_s = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda pair: _evaluate_plainly(Path(folder), *pair), enumerate(items)))
        self.seconds += time.perf_counter() - began_s
        self.done += len(items)


@dataclass(kw_only=True)
class Batch:
    """What the runner did."""

    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    #: Of all groups, in nanoseconds.
    phases: Counter[str] = field(default_factory=Counter)
    #: How long slots held groups, in seconds, and how many groups were claimed.
    held_s: float = 0.0
    groups: int = 0


def items_of(number: int) -> list[Item]:
    """A group as trainers send it."""
    reference, codes = sent(number, size=GROUP)
    return [Item(reference=reference, candidate=code) for code in codes]


def main(options: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="modules", description=main.__doc__)
    parser.add_argument("--slots", type=int, default=1, help="slots of the CPU type")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--gpu", metavar="TYPE", help="evaluate on what this host has of a GPU type")
    where.add_argument("--emulate", action="store_true", help="evaluate on an emulated device")
    asked = parser.parse_args(list(options))
    items = [item for number in range(-(-CANDIDATES // GROUP)) for item in items_of(number)][:CANDIDATES]
    if asked.gpu is not None or asked.emulate:
        _measure_devices(items, asked.gpu, slots=asked.slots)
        return
    slots: int = asked.slots
    chosen = items[:: max(1, min(LOOP_PART, len(items) // LOOP_LEAST))]
    cores = len(os.sched_getaffinity(0))
    loops = {1: Loop(), cores: Loop()}
    half = len(chosen) // 2
    for at_once, loop in loops.items():
        loop.run(chosen[:half], at_once=at_once)
    with database("modules") as url, live_runner(url, cpu_slots=slots, warm_containers=1) as live:
        batch = _evaluate(live, items, gpu_type="CPU")
    for at_once, loop in loops.items():
        loop.run(chosen[half:], at_once=at_once)
    _print(batch, loops, slots=slots, references=len({item.reference for item in items}), target_per_s=TARGET_PER_S)


def _measure_devices(items: Sequence[Item], gpu_type: str | None, *, slots: int) -> None:
    """Evaluate on devices; None: on emulated ones, one in each slot."""
    with tempfile.TemporaryDirectory() as overlay, database("modules") as url:
        settings: dict[str, object] = {"gpus_dir": overlay, "warm_containers": 1, "build_timeout_s": 120}
        if gpu_type is None:
            emulated = 'extends = "CPU"\nname = "CPU"\nmemory_gib = 2.0\nemulate_cuda = true\n'
            (Path(overlay) / "CPU.toml").write_text(emulated, encoding="utf-8")
            settings["cpu_slots"] = slots
        with live_runner(url, **settings) as live:
            batch = _evaluate(live, items, gpu_type=gpu_type or "CPU")
            with psycopg.connect(url) as connection:
                row = connection.execute(
                    "SELECT count(DISTINCT report ->> 'slot') FROM runner.job WHERE batch_id IS NOT NULL"
                ).fetchone()
    used = 1 if row is None else int(row[0])
    references = len({item.reference for item in items})
    _print(batch, {}, slots=used, references=references, target_per_s=TARGET_ON_DEVICE_PER_S)


def _evaluate(live: LiveRunner, items: Sequence[Item], *, gpu_type: str) -> Batch:
    batch = Batch()
    with Client(live.database_url, gpu_type=gpu_type, settings=SETTINGS, outstanding=OUTSTANDING) as client:
        # The first container of a daemon is made while the GPU type is probed.
        client.evaluate(items_of(-1))
        began_s = time.perf_counter()
        batch.results = client.evaluate(items, progress=sys.stderr.isatty())
        batch.seconds = time.perf_counter() - began_s
    with psycopg.connect(live.database_url) as connection:
        rows = connection.execute(
            "SELECT report, extract(epoch FROM finished_at - started_at)::float8 FROM runner.job"
            " WHERE batch_id IS NOT NULL ORDER BY id OFFSET 1"
        ).fetchall()
    for report, held_s in rows:
        batch.phases.update(report["phases_ns"])
        batch.held_s += held_s
        batch.groups += 1
    return batch


def _evaluate_plainly(folder: Path, number: int, item: Item) -> None:
    reference, code = folder / f"reference-{number}.py", folder / f"candidate-{number}.py"
    reference.write_text(item.reference, encoding="utf-8")
    code.write_text(item.candidate, encoding="utf-8")
    subprocess.run([sys.executable, "-c", _ONE, reference, code], check=False, capture_output=True, cwd=ROOT)


def _print(batch: Batch, loops: Mapping[int, Loop], *, slots: int, references: int, target_per_s: float) -> None:
    count = len(batch.results)
    verdicts = dict(Counter(str(result.verdict) for result in batch.results))
    timing = dict(Counter(str(result.facts["timing"]) for result in batch.results if result.correct))
    print(f"\n{count} candidates of {references} references, {slots} slots; {verdicts}; times {timing}")
    print("| | candidates | seconds | candidates/s | asked for |\n|---|---|---|---|---|")
    print(f"| runner | {count} | {batch.seconds:.1f} | {count / batch.seconds:.2f} | {target_per_s:g} |")
    for at_once, loop in loops.items():
        rate = loop.done / loop.seconds
        print(f"| plain loop, {at_once} at a time | {loop.done} | {loop.seconds:.1f} | {rate:.2f} | |")
    whole_s = batch.seconds * slots
    rows: list[tuple[str, float]] = [(what, batch.phases[name] / 1e9) for name, what in PHASES.items()]
    known_s = sum(seconds for _, seconds in rows)
    rows += [("claim and commit", batch.held_s - known_s), ("slots without a group", whole_s - batch.held_s)]
    print(f"\n{batch.groups} groups; where the slots' time went:\n")
    print("| | ms per candidate | share |\n|---|---|---|")
    for what, seconds in rows:
        print(f"| {what} | {seconds / count * 1e3:.1f} | {seconds / whole_s:.1%} |")
    _print_spread(batch.results)


def _print_spread(results: Sequence[Result]) -> None:
    """The spread of speed-ups of copies of the reference, which should be 1."""
    found: list[Any] = sorted(result.facts["speedup"] for result in results if result.correct)
    if found:
        ends = (found[len(found) // 20], found[len(found) // 2], found[-1 - len(found) // 20])
        within = sum(result.speedup == 1.0 for result in results if result.correct)
        print(f"\nspeed-up of copies of the reference: 5 % {ends[0]:.2f}, median {ends[1]:.2f}, 95 % {ends[2]:.2f};")
        print(f"the interval holds 1 in {within} of {len(found)}")


if __name__ == "__main__":
    main()
