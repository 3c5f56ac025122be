"""Submit → committed result of a tiny vectoradd on the CPU type, beside the plain sequence of processes it replaces.

Ours: `runner.submit` on a real PostgreSQL, the real daemon, a fresh container under the built-in harness (judge and
worker, two uids). Mode leaderboard is both jobs, public and secret, one after the other in it.
Plain: what KernelBot's runner does for one chain (see `_plain`), with a task of the same size. For mode leaderboard the
public chain alone, which favours the plain side.

The host is at rest before each submission, so its containers are warm.

Both run in turns in the same minutes, since these machines are noisy; the ratio of the medians is the figure.

`--compiles torch.compile`, `load_inline`, or with torch's own headers `extension`: a submission that compiles, in mode
leaderboard alone. As on fresh machines neither side finds caches of an earlier round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks._live import accepted, database
from tests.benchmarks._plain import CHAINS, lay_out, run_chain
from tests.benchmarks.build import SOURCES
from tests.plugins.live import ROOT, LiveRunner, live_runner

ROUNDS = 7
#: Before each submission: a daemon at rest has warm containers. A busy one starts them between jobs instead.
QUIET_S = 7.0
SUBMISSION_FILE = ROOT / "tasks" / "problems" / "vectoradd" / "solutions" / "correct" / "torch_add.py"
#: `processor`: seconds of all processes in the container.
PHASES = ("queue", "container", "import", "eval", "commit", "processor")


@dataclass
class Samples:
    """Milliseconds of one mode."""

    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    #: By run, public or secret, and phase.
    phases: dict[str, dict[str, list[float]]] = field(default_factory=dict)


def main(options: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=turnaround")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--compiles", choices=[name for name in SOURCES if name != "tiny"])
    given = parser.parse_args(options)
    samples = {mode: Samples() for mode in CHAINS if given.compiles is None or mode == "leaderboard"}
    code = SUBMISSION_FILE.read_bytes()
    with runner() as live, tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as name:
        folder = Path(name)
        lay_out(folder)
        run_ours(live, code, "test", Samples())
        run_plain(folder, code, "test", Samples())
        for number in range(given.rounds):
            if given.compiles is not None:
                code = SOURCES[given.compiles].format(mark=number).encode()
            for mode, sample in samples.items():
                time.sleep(QUIET_S)
                run_ours(live, code, mode, sample)
                run_plain(folder, code, mode, sample)
            print(
                f"round {number + 1}: ",
                {mode: (sample.ours[-1], sample.plain[-1]) for mode, sample in samples.items()},
                flush=True,
            )
    report(samples, given.rounds)


@contextmanager
def runner() -> Iterator[LiveRunner]:
    """A daemon on a database of its own, with the task under the built-in harness."""
    # The type as it comes: a compiler that reads torch's headers needs more memory than tests give.
    with database("turnaround") as url, live_runner(url, build_timeout_s=600, gpus_dir="/nonexistent") as live:
        live.board(ROOT / "tasks" / "problems" / "vectoradd", name="board")
        yield live


def run_ours(live: LiveRunner, code: bytes, mode: str, sample: Samples) -> None:
    """One submission from the call to the committed result."""
    began = time.monotonic()
    view = live.wait(live.submit("board", code, mode=mode), poll_s=0.025)
    sample.ours.append((time.monotonic() - began) * 1e3)
    accepted(view)
    ready_at = view.jobs[0].created_at
    for job in view.jobs:
        if job.report is None or ready_at is None or job.started_at is None or job.finished_at is None:
            raise RuntimeError(f"job {job.id} has no report or no times")
        phases = {name: value / 1e6 for name, value in job.report["phases_ns"].items()}
        held = (job.finished_at - job.started_at).total_seconds() * 1e3
        # A secret run cannot start before the end of its public run.
        phases["queue"] = (job.started_at - ready_at).total_seconds() * 1e3
        phases["commit"] = held - sum(phases[name] for name in ("container", "import", "eval"))
        phases["processor"] = job.report["outcome"]["cpu_ns"] / 1e6
        ready_at = job.finished_at
        samples = sample.phases.setdefault("secret" if job.secret else "public", {phase: [] for phase in PHASES})
        for phase in PHASES:
            samples[phase].append(phases[phase])


def run_plain(folder: Path, code: bytes, mode: str, sample: Samples) -> None:
    """One chain of plain processes."""
    took_s, passed = run_chain(folder, code, mode)
    if not passed:
        raise RuntimeError(f"plain {mode}: it did not pass")
    sample.plain.append(took_s * 1e3)


def report(samples: dict[str, Samples], rounds: int) -> None:
    """The table."""
    print(f"medians of {rounds} rounds, ms")
    for mode, sample in samples.items():
        ours, plain = statistics.median(sample.ours), statistics.median(sample.plain)
        print(f"{mode:<12} ours {ours:.0f}, plain {plain:.0f}, ratio {ours / plain:.2f}")
        for run, phases in sample.phases.items():
            print(f"  {run}: ", ", ".join(f"{phase} {statistics.median(phases[phase]):.0f}" for phase in PHASES))


if __name__ == "__main__":
    main()
