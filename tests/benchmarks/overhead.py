"""What an evaluation of ten benchmark cases takes beside the calls themselves, by phase; CPU, without a container.

`make bench ARGS=overhead`. Judge and worker have been started and wait, as in a warm container; the time is that from
the request to the last frame. Ten sizes of a vector addition in mode benchmark; a hundred calls of each at most. All
that is no call of the kernel is overhead, making inputs and checking outputs too. Asked for is a second.
"""

from __future__ import annotations

import time
from statistics import median

from tasks.harness.local import Pair, lines_of
from tests.benchmarks._judging import machine, request_of

ROUNDS = 7
#: Until judge, worker and control process are warm.
REST_S = 4.0
#: None so large that torch shares an addition out among threads: how long those wait for each other is the machine's.
SIZES = tuple(1 << power for power in range(6, 16))
REFERENCE = """
import torch


def generate_input(size, seed):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(size, generator=generator) for _ in range(2))


def ref_kernel(data):
    return data[0] + data[1]


def check_implementation(data, output):
    return "" if torch.allclose(output, ref_kernel(data)) else "wrong values"
"""
SUBMISSION = "def custom_kernel(data):\n    return data[0] + data[1]\n"
PREPARING = ("prepare", "calibrate", "load")
PHASES = ("inputs", "hand_over", "check", "controls", "statistics")


def main() -> None:
    """Measure and print."""
    rows: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        with Pair() as pair:
            time.sleep(REST_S)
            began = time.monotonic_ns()
            step = pair.run(
                request_of(SUBMISSION, [f"size: {size}; seed: 1" for size in SIZES], reference=REFERENCE)
            ).steps[0]
            wall_ns = time.monotonic_ns() - began
        if step.judged is None or step.judged.verdict != "accepted":
            raise RuntimeError(f"expected the verdict accepted, found {step.judged}")
        details = step.judged.details
        row = {name: details[f"{name}_ns"] / 1e6 for name in PREPARING}
        row |= {name: details["phases_ns"][name] / 1e6 for name in PHASES}
        calls = details["phases_ns"]["call"] / 1e6
        row["rest"] = wall_ns / 1e6 - calls - sum(row.values())
        rows.append({"wall": wall_ns / 1e6, "calls": calls, "overhead": wall_ns / 1e6 - calls, **row})
    count = sum(int(lines_of(step)[f"benchmark.{index}.runs"]) for index in range(len(SIZES)))
    print(f"{machine()}; {len(SIZES)} cases, {count} timed calls; ms, medians of {ROUNDS} rounds")
    print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    print(f"| {' | '.join(f'{median(row[name] for row in rows):.0f}' for name in rows[0])} |")


if __name__ == "__main__":
    main()
