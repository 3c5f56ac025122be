"""Submit → committed result of a tiny vectoradd on the CPU type, beside the plain sequence of processes it replaces.

Ours: `runner.submit` on a real PostgreSQL, the real daemon, a fresh container under the built-in harness (judge and
worker, two uids). Mode leaderboard is both jobs, public and secret, one after the other in it.
Plain: what KernelBot's runner does for one chain, on this machine, without container, queue or database: one
pre-compile run of the submission, then one `python eval.py` per mode, with a KernelBot-format task of the same size.
For mode leaderboard the public chain alone, which favours the plain side.

The host is at rest before each submission, so its containers are warm. `back to back` is the same submission ten times
in the queue at once, per submission, where they are not; plain chains run one after the other anyway.

Both run in turns in the same minutes, since these machines are noisy; the ratio of the medians is the figure.

`--compiles torch.compile`, `load_inline`, or with torch's own headers `extension`: a submission that compiles, in mode
leaderboard alone, without the burst. As on fresh machines neither side finds caches of an earlier round.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runner.task_format import load
from runner.task_format.model import SUBMISSION, PyConfig
from tasks.harness.judge.cases import spec_line
from tests.benchmarks._live import accepted, database
from tests.benchmarks.build import SOURCES
from tests.plugins.live import ROOT, LiveRunner, live_runner

ROUNDS = 7
#: Before each submission: a daemon at rest has warm containers. A busy one starts them between jobs instead.
QUIET_S = 7.0
CHAINS = {"test": ("test",), "benchmark": ("benchmark",), "leaderboard": ("test", "benchmark", "leaderboard")}
TASK = ROOT / "tests" / "fixtures" / "kernelbot_vectoradd"
SUBMISSION_FILE = ROOT / "tasks" / "problems" / "vectoradd" / "solutions" / "correct" / "torch_add.py"
#: Where plain processes keep what compilers made: variable -> folder beside the submission.
COMPILERS_CACHES = {"TORCH_EXTENSIONS_DIR": "extensions", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
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
    with runner() as live, plain_folder() as folder:
        code = (folder / "submission.py").read_bytes()
        run_ours(live, code, "test", Samples())
        run_plain(folder, "test", Samples())
        for number in range(given.rounds):
            if given.compiles is not None:
                code = SOURCES[given.compiles].format(mark=number).encode()
                (folder / "submission.py").write_bytes(code)
            for mode, sample in samples.items():
                time.sleep(QUIET_S)
                run_ours(live, code, mode, sample)
                run_plain(folder, mode, sample)
            print(
                f"round {number + 1}: ",
                {mode: (sample.ours[-1], sample.plain[-1]) for mode, sample in samples.items()},
                flush=True,
            )
        burst = None if given.compiles else back_to_back(live, code)
    report(samples, given.rounds)
    if burst is None:
        return
    plain = statistics.median(samples["leaderboard"].plain)
    print(f"back to back, leaderboard: {burst:.0f} ms per submission, {burst / plain:.2f} of plain")


@contextmanager
def runner() -> Iterator[LiveRunner]:
    """A daemon on a database of its own, with the task under the built-in harness."""
    # The type as it comes: a compiler that reads torch's headers needs more memory than tests give.
    with database("turnaround") as url, live_runner(url, build_timeout_s=600, gpus_dir="/nonexistent") as live:
        live.board(ROOT / "tasks" / "problems" / "vectoradd", name="board")
        yield live


@contextmanager
def plain_folder() -> Iterator[Path]:
    """The task's files side by side, as KernelBot's runner lays them out."""
    loaded = load(TASK)
    submission = SUBMISSION_FILE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as name:
        folder = Path(name)
        for file, text in loaded.task.files.items():
            (folder / file).write_text(submission if text == SUBMISSION else text, encoding="utf-8")
        cases = loaded.task.cases_for("CPU")
        for mode, chosen in (("test", cases.tests), ("benchmark", cases.benchmarks), ("leaderboard", cases.benchmarks)):
            (folder / f"{mode}.txt").write_text("\n".join(map(spec_line, chosen or ())) + "\n", encoding="utf-8")
        if not isinstance(loaded.task.config, PyConfig):
            raise TypeError(f"{TASK} has no Python eval program")
        (folder / "main").write_text(loaded.task.config.main, encoding="utf-8")
        yield folder


def run_ours(live: LiveRunner, code: bytes, mode: str, sample: Samples) -> None:
    """One submission from the call to the committed result."""
    began = time.monotonic()
    view = live.wait(live.submit("board", code, mode=mode), poll_s=0.025)
    sample.ours.append((time.monotonic() - began) * 1e3)
    accepted(view)
    ready_at = view.jobs[0].created_at
    for job in view.jobs:
        if job.report is None or job.started_at is None or job.finished_at is None:
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


def back_to_back(live: LiveRunner, code: bytes) -> float:
    """Milliseconds per ranked submission when many are queued at once."""
    count = 10
    began = time.monotonic()
    numbers = [live.submit("board", code, mode="leaderboard") for _ in range(count)]
    for number in numbers:
        accepted(live.wait(number))
    return (time.monotonic() - began) * 1e3 / count


def run_plain(folder: Path, mode: str, sample: Samples) -> None:
    """One chain of plain processes."""
    python = os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(ROOT / ".venv-eval" / "bin" / "python"))
    main_file = (folder / "main").read_text(encoding="utf-8")
    for name in COMPILERS_CACHES.values():
        shutil.rmtree(folder / name, ignore_errors=True)
    began = time.monotonic()
    run_process([python, "submission.py"], folder, {"POPCORN_SEED": "1"})
    for step in CHAINS[mode]:
        reader, writer = os.pipe()
        try:
            run_process([python, main_file, step, f"{step}.txt"], folder, {"POPCORN_FD": str(writer)}, writer)
            os.set_blocking(reader, False)
            result = os.read(reader, 1 << 20)
        finally:
            os.close(reader)
            os.close(writer)
        if b"check: pass" not in result:
            raise RuntimeError(f"plain {step}: {result!r}")
    sample.plain.append((time.monotonic() - began) * 1e3)


def run_process(arguments: list[str], folder: Path, extra: dict[str, str], *keep: int) -> None:
    """One program, its output dropped."""
    subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, **{key: str(folder / name) for key, name in COMPILERS_CACHES.items()}, **extra},
        pass_fds=keep,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=120,
    )


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
