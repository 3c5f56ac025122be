"""A ranked submission here beside KernelBot's own evaluation: `make bench ARGS="kernelbot --checkout DIR"`.

Ours: `runner.submit` on a real PostgreSQL, the real daemon, real containers, until both results are committed. The host
is at rest before it. `in a queue` is five of them submitted at once, per submission.
KernelBot: `run_config` of the checkout, mode leaderboard, once for the public and once for the secret run, each in a
process of its own, without container, queue or database. Its eval program is that of its examples, moved to the CPU:
events are readings of the processor's clock, and the L2 cache is not emptied, which favours KernelBot.

Both add two float16 matrices: three tests, and two benchmarks whose inputs have the sizes in `SIZES`. They take turns,
since these machines are noisy; the ratio of the medians is the figure.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from runner.task_format import load
from runner.task_format.model import SUBMISSION
from tests.benchmarks._live import accepted, database
from tests.benchmarks.build import SOURCES
from tests.benchmarks.load import write_task
from tests.plugins.live import ROOT, LiveRunner, live_runner

#: Rows of the matrices of the two benchmarks: inputs of 64 and 128 KiB, 1.5 and 3 MiB, 16 and 32 MiB.
SIZES: Final[Mapping[str, tuple[int, int]]] = {"tiny": (128, 181), "small": (627, 886), "large": (2048, 2896)}
PLAIN: Final = "# {mark}\ndef custom_kernel(data):\n    return data[0] + data[1]\n"
COMPILED: Final = "compiled"
#: Before each submission: a daemon at rest has warm containers.
QUIET_S: Final = 7.0
QUEUE: Final = 5
RUN_S: Final = 600.0
PROGRAM: Final = """
import json, sys
from libkernelbot.run_eval import run_config
runs = run_config(json.loads(sys.stdin.read())).runs
if not ("leaderboard" in runs and runs["leaderboard"].run.passed):
    sys.exit(f"not passed: {runs}")
"""
#: What an eval program for CUDA needs of a host without a device.
NO_DEVICE: Final = """
import time
import torch

class Event:
    def __init__(self, enable_timing):
        pass

    def record(self):
        self.at_s = time.perf_counter()

    def elapsed_time(self, end):
        return (end.at_s - self.at_s) * 1e3

torch.cuda.Event = Event
torch.cuda.synchronize = lambda: None
"""


def main(options: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="kernelbot")
    parser.add_argument("--checkout", type=Path, required=True, help="a checkout of KernelBot")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=[*SIZES, COMPILED])
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(options)
    times: dict[str, dict[str, list[float]]] = {
        name: {"KernelBot": [], "ours": [], "in a queue": []} for name in chosen.sizes
    }
    with (
        tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as folder,
        database("kernelbot") as url,
        live_runner(url, build_timeout_s=600, gpus_dir="/nonexistent") as live,
    ):
        for name in chosen.sizes:
            write_task(ROOT / "tasks" / "problems" / "vectoradd", Path(folder, name), SIZES[_size(name)])
            live.board(Path(folder, name), name=name)
        for number in range(chosen.rounds):
            for name, row in times.items():
                row["KernelBot"].append(run_kernelbot(chosen.checkout, name, number))
                time.sleep(QUIET_S)
                row["ours"].append(run_ours(live, name, count=1))
                row["in a queue"].append(run_ours(live, name, count=QUEUE))
                print(f"round {number + 1}, {name}: " + _line(row, lambda values: values[-1]), flush=True)
    print(f"medians of {chosen.rounds}, seconds per submission")
    for name, row in times.items():
        print(f"{name:<9} " + _line(row, statistics.median))


def _line(row: Mapping[str, list[float]], pick: Callable[[list[float]], float]) -> str:
    seconds = {side: pick(values) for side, values in row.items()}
    return ", ".join(f"{side} {value:.2f} ({value / seconds['KernelBot']:.3f})" for side, value in seconds.items())


def _size(name: str) -> str:
    return "small" if name == COMPILED else name


def _code(name: str, mark: str) -> str:
    """A file of its own for each submission, so that no compiler finds an earlier one's."""
    return (SOURCES["torch.compile"] if name == COMPILED else PLAIN).format(mark=mark)


def run_ours(live: LiveRunner, name: str, *, count: int) -> float:
    """Seconds per submission of `count` that are submitted at once."""
    began_s = time.monotonic()
    numbers = [live.submit(name, _code(name, f"{began_s} {n}").encode(), mode="leaderboard") for n in range(count)]
    for number in numbers:
        accepted(live.wait(number, poll_s=0.025))
    return (time.monotonic() - began_s) / count


def run_kernelbot(checkout: Path, name: str, mark: int) -> float:
    """Seconds of a public and a secret run by KernelBot.

    Raises:
        CalledProcessError: one did not pass.
    """
    python = os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(ROOT / ".venv-eval" / "bin" / "python"))
    began_s = time.monotonic()
    for seed in (None, 1234):
        with tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as folder:
            # Its evaluation calls `python3`. As on fresh machines there is no compilers' cache of an earlier run.
            path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
            caches = dict.fromkeys(("TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"), folder)
            subprocess.run(
                [python, "-c", PROGRAM],
                input=json.dumps({**_config(checkout, name, mark), "seed": seed}),
                cwd=folder,
                env={**os.environ, **caches, "PATH": path, "PYTHONPATH": str(checkout.resolve() / "src")},
                stdout=subprocess.DEVNULL,
                text=True,
                check=True,
                timeout=RUN_S,
            )
    return time.monotonic() - began_s


def _config(checkout: Path, name: str, mark: int) -> dict[str, object]:
    """What KernelBot's launcher hands to its evaluation."""
    task = load(ROOT / "tests" / "fixtures" / "kernelbot_vectoradd").task
    theirs = {path: (checkout / "examples" / path).read_text(encoding="utf-8") for path in ("eval.py", "utils.py")}
    files = {path: text for path, text in task.files.items() if text != SUBMISSION}
    return {
        "lang": "py",
        "main": "eval.py",
        "mode": "leaderboard",
        "arch": None,
        "sources": {
            **files,
            "submission.py": _code(name, str(mark)),
            "no_device.py": NO_DEVICE,
            "eval.py": "import no_device\n" + theirs["eval.py"].replace('device = f"cuda:{rank}"', 'device = "cpu"'),
            # The reference needs ours, the eval program theirs.
            "utils.py": f"{files['utils.py']}\n{theirs['utils.py']}\n\ndef clear_l2_cache():\n    pass\n",
        },
        "tests": list(task.cases_for("CPU").tests or ()),
        "benchmarks": [{"size": size, "seed": 7059 + n} for n, size in enumerate(SIZES[_size(name)])],
        "test_timeout": RUN_S,
        "benchmark_timeout": RUN_S,
        "ranked_timeout": RUN_S,
        # The geometric mean over all benchmarks, as ours.
        "ranking_by": "geom",
        "multi_gpu": False,
    }


if __name__ == "__main__":
    main()
