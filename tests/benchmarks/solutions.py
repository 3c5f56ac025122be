"""Ranked runs of the shipped problems' templates and right solutions, beside each submission's own clock; CPU.

`make bench ARGS=solutions`; `ARGS="solutions --problems sort qr"`. Real daemon, containers and PostgreSQL; one
submission after the other, public and secret run. Printed for each case: what the submission claims, by how much the
judge's spans less hand-over exceed that, and why. The last lines count the cases within what is asked for, 2 % or 2 µs,
and the audited ones. Problems of several ranks are left out: their spans hold waits for each other.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.base.model import Verdict
from runner.task_format import load
from tests.benchmarks._judging import machine
from tests.benchmarks._live import database
from tests.plugins.live import ROOT, LiveRunner, live_runner

PROBLEMS = ROOT / "tasks" / "problems"
TOLERANCE, TOLERANCE_NS = 0.02, 2_000
_SHOWN = ("calls", "controls", "set_aside", "timed_again", "stopped", "timing")


def main(options: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="solutions")
    parser.add_argument("--problems", nargs="*", help="folders below tasks/problems; default: all for a CPU")
    chosen = parser.parse_args(options).problems or sorted(path.parent.name for path in PROBLEMS.glob("*/task.yml"))
    counts: Counter[str] = Counter()
    print(machine())
    print(f"| problem | file | run | case | claim, µs | excess | {' | '.join(_SHOWN)} |")
    print(f"|{'---|' * (6 + len(_SHOWN))}", flush=True)
    with database("solutions") as url, live_runner(url, build_timeout_s=600, gpus_dir="/nonexistent") as live:
        for problem in chosen:
            _run(live, problem, counts)
    print(f"\nwithin 2 % or 2 µs: {counts['within']} of {counts['cases']} cases; audited: {counts['audited']}")
    print(f"accepted: {counts['accepted']} of {counts['runs']} runs")


def _run(live: LiveRunner, problem: str, counts: Counter[str]) -> None:
    """Evaluate one problem's files and print a line for each case."""
    files = list(_files(PROBLEMS / problem))
    if files:
        live.board(PROBLEMS / problem, name=problem)
    for name, text in files:
        # A submission of its own each time: no result of another serves it.
        code = f"{text}\n# {time.time_ns()}\n".encode()
        view = live.wait(live.submit(problem, code, mode="leaderboard"))
        for job in view.jobs:
            run = "secret" if job.secret else "public"
            counts["runs"] += 1
            counts["accepted"] += job.verdict is Verdict.ACCEPTED
            if job.verdict is not Verdict.ACCEPTED:
                print(f"{problem} {name} {run}: {job.verdict}: {job.error}", flush=True)
            for number, case in enumerate(_cases(job.report or {})):
                claim_ns, excess_ns = case["claimed_median_ns"], case["excess_ns"]
                counts["cases"] += 1
                counts["audited"] += case["timing"] == "audited"
                counts["within"] += abs(excess_ns) <= max(TOLERANCE * claim_ns, TOLERANCE_NS)
                excess = f"{excess_ns / 1e3:+.1f} ({excess_ns / claim_ns:+.1%})"
                shown = " | ".join(str(case[key]) for key in _SHOWN)
                print(
                    f"| {problem} | {name} | {run} | {number} | {claim_ns / 1e3:.1f} | {excess} | {shown} |", flush=True
                )


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of the files that are right; none of a task that is not for one process on a CPU."""
    loaded = load(folder)
    if "CPU" not in loaded.gpus or loaded.task.multi_gpu:
        return
    if "Python" in loaded.templates:
        yield "template", loaded.templates["Python"]
    for path in sorted(folder.glob("solutions/correct/*.py")):
        yield path.name, path.read_text()


def _cases(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The cases of the ranked mode."""
    for step in report.get("steps", ()):
        if step["name"] == "leaderboard":
            yield from step["judged"]["details"].get("cases", ())


if __name__ == "__main__":
    main()
