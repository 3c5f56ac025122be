"""The KernelBook pipeline at the size of the published data: 18,162 rows, 256 requests at a time.

The endpoint takes a second for each answer. So the least time of a step that asks is its requests over 256, in seconds.
Beside each step stand that least time, the most memory, and a second run, which finds all answers in the journal.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks._judging import machine
from tests.fakes.tokenizer import pieces

ROWS = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "18162"))
#: Rows above the threshold: the share of the published data.
GOOD = round(ROWS * 7181 / 18162)
AT_ONCE = 256
ANSWER_S = 1.0
_ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _write_rows(folder)
        with subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.integration.extras.trainers.kernelbook.endpoint",
                str(folder / "log"),
                str(ANSWER_S),
            ],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as endpoint:
            assert endpoint.stdout is not None
            url = f"http://127.0.0.1:{endpoint.stdout.readline().strip()}/v1"
            try:
                _measure(folder, url)
            finally:
                endpoint.kill()


def _measure(folder: Path, url: str) -> None:
    print(f"\n{machine()}; {ROWS} rows, {GOOD} of them above the threshold, {AT_ONCE} requests at a time")
    print("| step | seconds | least | times the least | seconds of a second run | most memory, MiB |")
    print("|---|---|---|---|---|---|")
    for step, asked in (("filter", GOOD), ("prompts", ROWS)):
        least_s = math.ceil(asked / AT_ONCE) * ANSWER_S
        first_s, memory = _run(folder, url, step, "--input", str(folder / f"{step}.jsonl"))
        again_s, _ = _run(folder, url, step, "--input", str(folder / f"{step}.jsonl"))
        times = f"{first_s:.1f} | {least_s:.1f} | {first_s / least_s:.2f} | {again_s:.1f}"
        print(f"| {step} | {times} | {memory:.0f} |", flush=True)
    tokenizer = pieces(folder, [f"class Net{number}: because x user assistant" for number in range(ROWS)])
    for command in (
        ("best",),
        ("lengths", "--input", "outputs/filtered_dataset.jsonl", "--tokenizer", str(tokenizer)),
        ("upload", "all", "--to", str(folder / "sets")),
    ):
        seconds, memory = _run(folder, url, *command)
        print(f"| {command[0]} | {seconds:.1f} | | | | {memory:.0f} |", flush=True)


def _run(folder: Path, url: str, *arguments: str) -> tuple[float, float]:
    """Seconds of a command, and its most memory, in MiB."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "PRIME_BASE_URL": url,
        "PRIME_API_KEY": "a key",
        "BATCH_SIZE": str(AT_ONCE),
        "FILTERED_DATASET_PATH": "outputs/filtered_dataset.jsonl",
        "UNIQUE_DATASET_PATH": "outputs/filtered_dataset-filtered.jsonl",
        "SYNTHETIC_DATASET_PATH": "outputs/synthetic_prompts.jsonl",
    }
    began = time.monotonic()
    # Of this process alone: what its parent has does not count.
    process = subprocess.Popen(
        [sys.executable, "-m", "runner.cli", "kernelbook", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return time.monotonic() - began, used.ru_maxrss / 1024


def _write_rows(folder: Path) -> None:
    with (folder / "filter.jsonl").open("w") as evaluations, (folder / "prompts.jsonl").open("w") as modules:
        for number in range(ROWS):
            code = f"class Net{number}:\n" + f"    # {'x' * 60}\n" * 20
            row = {
                "example_id": number,
                "prompt": [{"role": "user", "content": f"write {number}\n{code}"}],
                "completion": [{"role": "assistant", "content": code, "reasoning": "because " * 1500}],
                "reward": 1.0 if number < GOOD else 0.5,
                "info": {"module_name": f"Net{number % 2967}", "python_code": code},
            }
            evaluations.write(json.dumps(row) + "\n")
            modules.write(json.dumps({"entry_point": f"Net{number}", "python_code": code}) + "\n")


if __name__ == "__main__":
    main()
