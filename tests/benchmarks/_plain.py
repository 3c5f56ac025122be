"""The plain sequence of processes that a submission replaces: what KernelBot's runner does for one chain.

One pre-compile run of the submission, then one `python eval.py` per mode, with a KernelBot-format vectoradd, on this
machine, without container, queue or database. A chain ends with its first failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runner.task_format import load
from runner.task_format.model import SUBMISSION, PyConfig
from tasks.harness.judge.cases import spec_line
from tests.plugins.live import ROOT

CHAINS: Final = {"test": ("test",), "benchmark": ("benchmark",), "leaderboard": ("test", "benchmark", "leaderboard")}
#: Where compilers keep what they made: variable -> folder beside the submission. A chain begins without.
CACHES: Final = {"TORCH_EXTENSIONS_DIR": "extensions", "TORCHINDUCTOR_CACHE_DIR": "inductor"}


def lay_out(folder: Path, sizes: Sequence[int] | None = None) -> None:
    """The task's files side by side, as KernelBot's runner lays them out. `sizes`: other ones of the benchmarks."""
    task = load(ROOT / "tests" / "fixtures" / "kernelbot_vectoradd").task
    if not isinstance(task.config, PyConfig):
        raise TypeError("the plain task has no Python eval program")
    folder.mkdir(exist_ok=True)
    for name, text in task.files.items():
        if text != SUBMISSION:
            (folder / name).write_text(text, encoding="utf-8")
    (folder / "main").write_text(task.config.main, encoding="utf-8")
    cases = task.cases_for("CPU")
    benchmarks = [spec_line(case) for case in cases.benchmarks or ()]
    if sizes is not None:
        benchmarks = [f"size: {size}; seed: {7059 + number}" for number, size in enumerate(sizes)]
    tests = [spec_line(case) for case in cases.tests or ()]
    for mode, lines in (("test", tests), ("benchmark", benchmarks), ("leaderboard", benchmarks)):
        (folder / f"{mode}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_chain(folder: Path, code: bytes, mode: str, *, limit_s: float = 600) -> tuple[float, bool]:
    """Seconds of one chain, and whether it passed. A program that takes longer than its limit is killed."""
    python = os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(ROOT / ".venv-eval" / "bin" / "python"))
    main_file = (folder / "main").read_text(encoding="utf-8")
    for name in CACHES.values():
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "submission.py").write_bytes(code)
    began = time.monotonic()
    good = _process([python, "submission.py"], folder, limit_s=limit_s) == 0
    for step in CHAINS[mode]:
        if not good:
            break
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as result:
            _process([python, main_file, step, f"{step}.txt"], folder, result=writer, limit_s=limit_s)
            os.close(writer)
            good = b"check: pass" in result.read()
    return time.monotonic() - began, good


def _process(arguments: list[str], folder: Path, *, result: int | None = None, limit_s: float) -> int:
    """One program and what it started, its output dropped; its exit code."""
    variable = {"POPCORN_SEED": "1"} if result is None else {"POPCORN_FD": str(result)}
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env={**os.environ, **{key: str(folder / name) for key, name in CACHES.items()}, **variable},
        pass_fds=() if result is None else (result,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        return process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return process.wait()
