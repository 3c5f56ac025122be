"""A queue of ranked submissions that compile an extension: with a build lane, and without one, in turns.

Six users submit a vectoradd with a little C++ by torch's `load_inline` at the same moment, to one slot of the CPU type
that has at most half of the machine's cores; the other half is reserved, and with `build_lanes = "auto"` it builds.
Without (`build_lanes = 0`) each run compiles for itself: the public and the secret one, on the slot's cores. The
turn-around of a submission is from its `runner.submit` to its last committed result; what counts is how long all take.
The C++ takes seconds to compile; with torch's own headers it would be half a minute, and the lane would gain more.

Both take turns in the same minutes, since these machines are noisy. `built` is how many builds the log tells of,
`waited` what the jobs spent waiting: for their twin's build, for a lane, for their slot.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass

from runner.model import JobState
from runner.store.records import SubmissionView
from tests.benchmarks._live import accepted, database
from tests.plugins.live import ROOT, live_runner

ROUNDS = 2
USERS = 6
PATIENCE_S = 1800.0
SOURCE = '''
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


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One queue worked off, in seconds."""

    all_s: float
    each_s: float
    built: int
    waited_s: float


def main() -> None:
    """Measure and print."""
    turns: dict[str, list[Turn]] = {"lane": [], "none": []}
    with database("build") as url:
        for number in range(ROUNDS):
            for name, lanes in (("none", 0), ("lane", "auto")):
                turn = measure(url, lanes=lanes, mark=f"{number}{name}")
                turns[name].append(turn)
                print(f"round {number + 1}, {name}: {turn}", flush=True)
    print(f"{USERS} ranked submissions with load_inline, medians of {ROUNDS} rounds, s")
    print(f"{'':<6}{'all done':>10}{'each':>8}{'built':>7}{'waited':>8}")
    for name, measured in turns.items():
        total, each, waited = (
            statistics.median(values)
            for values in zip(*((turn.all_s, turn.each_s, turn.waited_s) for turn in measured), strict=True)
        )
        print(f"{name:<6}{total:>10.0f}{each:>8.0f}{measured[-1].built:>7}{waited:>8.0f}")


def measure(url: str, *, lanes: int | str, mark: str) -> Turn:
    """Have a daemon with so many lanes work off the queue."""
    reserved = max(1, len(os.sched_getaffinity(0)) // 2)
    settings = {"build_timeout_s": 600, "cpu_slots": 1, "reserve_cpus": reserved, "build_lanes": lanes}
    # The type as it comes: a compiler that reads torch's headers needs more memory than tests give.
    with live_runner(url, **settings, gpus_dir="/nonexistent") as live:
        live.board(ROOT / "tasks" / "vectoradd", name=f"board-{mark}")
        began_s = time.monotonic()
        waiting = [
            live.submit(
                f"board-{mark}", SOURCE.format(mark=f"{mark} {user}").encode(), mode="leaderboard", user_id=user
            )
            for user in (f"user{index}" for index in range(USERS))
        ]
        done_s: dict[int, float] = {}
        views: dict[int, SubmissionView] = {}
        while len(done_s) < len(waiting):
            if time.monotonic() - began_s > PATIENCE_S:
                raise RuntimeError(f"not over after {PATIENCE_S:.0f} s; the daemon said:\n{live.log[-4000:]}")
            for number in waiting:
                if number not in done_s and (view := live.store.submission(number)).state is JobState.DONE:
                    done_s[number], views[number] = time.monotonic() - began_s, view
            time.sleep(0.1)
        reports = [job.report for view in map(accepted, views.values()) for job in view.jobs if job.report is not None]
        return Turn(
            all_s=max(done_s.values()),
            each_s=statistics.mean(done_s.values()),
            built=live.log.count('"event": "built"'),
            waited_s=sum(report["phases_ns"]["wait"] for report in reports) / 1e9,
        )


if __name__ == "__main__":
    main()
