"""A queue of submissions on one slot: without a build worker, and with one, in turns.

Users submit a ranked vectoradd at the same moment, to one slot of the CPU type with half of the machine's cores. The
other half is reserved, and with `build_workers = "auto"` it builds. Without (`build_workers = 0`) each run compiles for
itself, on the slot's cores.

Submissions of the first queue compile a little C++ by torch's `load_inline`, which takes seconds; with torch's own
headers (`--sources extension`) it would be half a minute. Those of the second use `torch.compile`, those of the third
compile nothing. The turn-around of a submission is from its `runner.submit` to its last committed result. `waited` is
what the jobs spent waiting: for the build of their submission's other job, for a build worker, for their slot. `idle`
is how long the slot had no job. `score` is the median of the scores: a build beside a measurement must not change it.

All take turns in the same minutes, since the machine's speed varies.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.base.model import JobState
from runner.store.records import SubmissionView
from tests.benchmarks._live import accepted, database
from tests.plugins.live import ROOT, live_runner

PATIENCE_S = 1800.0
COMPILES = '''
import ctypes
from torch.utils.cpp_extension import load_inline

# {mark}
library = ctypes.CDLL(load_inline(name="library", cpp_sources=["""
#include <iostream>
#include <regex>
extern "C" int factor() {{ return std::regex_match("abc", std::regex("a+b*(c|d)")); }}
"""], no_implicit_headers=True, is_python_module=False))

def custom_kernel(data):
    a, b, *_ = data
    return (a + b) * library.factor()
'''
EXTENSION = '''
from torch.utils.cpp_extension import load_inline

# {mark}
library = load_inline(name="library", functions=["add"], cpp_sources=["""
torch::Tensor add(torch::Tensor a, torch::Tensor b) {{ return a + b; }}
"""])

def custom_kernel(data):
    a, b, *_ = data
    return library.add(a, b)
'''
INDUCTOR = """
import torch

# {mark}
@torch.compile(dynamic=False)
def add(a, b):
    return a + b

def custom_kernel(data):
    a, b, *_ = data
    return add(a, b)
"""
TINY = """
# {mark}
def custom_kernel(data):
    a, b, *_ = data
    return a + b
"""
SOURCES = {"load_inline": COMPILES, "torch.compile": INDUCTOR, "tiny": TINY, "extension": EXTENSION}
#: Way to build -> `build_workers`.
WAYS: Mapping[str, int | str] = {"no build worker": 0, "build worker": "auto"}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One queue worked off, in seconds."""

    all_s: float
    each_s: float
    built: int
    waited_s: float
    idle_s: float
    score_s: float


def main(options: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=build")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument(
        "--sources", nargs="*", choices=SOURCES, default=[name for name in SOURCES if name != "extension"]
    )
    given = parser.parse_args(options)
    rounds, users = given.rounds, given.users
    turns: dict[tuple[str, str], list[Turn]] = {}
    with database("build") as url:
        for number in range(rounds):
            for source in given.sources:
                for way, workers in WAYS.items():
                    mark = f"{number}-{source}-{way}".replace(" ", "-")
                    turn = measure(url, workers, SOURCES[source], users=users, mark=mark)
                    turns.setdefault((source, way), []).append(turn)
                    print(f"round {number + 1}, {source}, {way}: {turn}", flush=True)
    print(f"{users} ranked submissions on one slot, medians of {rounds} rounds, s")
    print(f"{'':<14}{'':<18}{'all done':>10}{'each':>8}{'built':>7}{'waited':>8}{'idle':>8}{'score':>11}")
    for (source, name), measured in turns.items():
        total, each, waited, idle, score = (
            statistics.median(values)
            for values in zip(
                *((turn.all_s, turn.each_s, turn.waited_s, turn.idle_s, turn.score_s) for turn in measured), strict=True
            )
        )
        built = measured[-1].built
        print(f"{source:<14}{name:<18}{total:>10.1f}{each:>8.1f}{built:>7}{waited:>8.1f}{idle:>8.1f}{score:>11.3e}")


def measure(url: str, workers: int | str, source: str, *, users: int, mark: str) -> Turn:
    """Have a daemon work off the queue."""
    reserved = max(1, len(os.sched_getaffinity(0)) // 2)
    settings = {"build_timeout_s": 600, "cpu_slots": 1, "reserve_cpus": reserved, "build_workers": workers}
    # The type as it comes: a compiler that reads torch's headers needs more memory than tests give.
    with live_runner(url, **settings, gpus_dir="/nonexistent") as live:
        board = f"board-{mark}"
        live.board(ROOT / "tasks" / "problems" / "vectoradd", name=board)
        began_s = time.monotonic()
        waiting = [
            live.submit(board, source.format(mark=f"{mark} {user}").encode(), mode="leaderboard", user_id=user)
            for user in (f"user{index}" for index in range(users))
        ]
        done_s: dict[int, float] = {}
        views: dict[int, SubmissionView] = {}
        while len(done_s) < len(waiting):
            if time.monotonic() - began_s > PATIENCE_S:
                raise RuntimeError(f"not over after {PATIENCE_S:.0f} s; the daemon said:\n{live.log[-4000:]}")
            for number in waiting:
                if number not in done_s and (view := live.store.submission(number)).status.state is JobState.DONE:
                    done_s[number], views[number] = time.monotonic() - began_s, view
            time.sleep(0.1)
        found = [accepted(view) for view in views.values()]
        jobs = [job for view in found for job in view.jobs]
        spans = [(job.started_at, job.finished_at) for job in jobs if job.started_at and job.finished_at]
        return Turn(
            all_s=max(done_s.values()),
            each_s=statistics.mean(done_s.values()),
            built=live.log.count('"event": "build_finished"'),
            waited_s=sum(job.report["phases_ns"]["wait"] for job in jobs if job.report is not None) / 1e9,
            idle_s=max(done_s.values()) - sum((end - start).total_seconds() for start, end in spans),
            score_s=statistics.median(score_s for view in found if (score_s := view.status.score_s) is not None),
        )


if __name__ == "__main__":
    main()
