"""Claim → first line of the submission: in a warm container, and in one that is started for the job.

The submission prints the time at which it is imported; the claim's time is the database's. Both read this machine's
clock. The cold daemon keeps no warm container (`warm_containers = 0`), so its figure holds the start of a container and
the import of torch. That import is printed beside it: what a plain interpreter of the evaluation environment takes for
it, in the same minutes. Before each submission the host is at rest for as long as a daemon takes to refill its pool.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time

from tests.benchmarks._live import accepted, database
from tests.plugins.live import ROOT, LiveRunner, live_runner

WARM_ROUNDS, COLD_ROUNDS = 40, 10
#: Before each submission, until its container is warm.
QUIET_S = 6.0
SOURCE = b"""
import time
print("IMPORTED", time.time())

def custom_kernel(data):
    return data[0] + data[1]
"""


def main() -> None:
    """Measure and print."""
    with database("warm_pool") as url:
        with live_runner(url) as live:
            live.board(ROOT / "tasks" / "problems" / "vectoradd", name="warm")
            report("warm", pickups(live, "warm", rounds=WARM_ROUNDS, quiet_s=QUIET_S))
        with live_runner(url, warm_containers=0) as live:
            live.board(ROOT / "tasks" / "problems" / "vectoradd", name="cold")
            report("cold", pickups(live, "cold", rounds=COLD_ROUNDS, quiet_s=0))
    report("import torch", [import_torch() for _ in range(COLD_ROUNDS)])


def pickups(live: LiveRunner, board: str, *, rounds: int, quiet_s: float) -> list[float]:
    """Seconds from the claim of a job to the first line of its submission."""
    found = []
    # The first one of a daemon may wait for its image; it counts in neither.
    for number in range(rounds + 1):
        time.sleep(quiet_s)
        view = accepted(live.wait(live.submit(board, SOURCE + b"# %d" % number), poll_s=0.01))
        job = view.jobs[0]
        if job.started_at is None or job.runs[0].meta is None:
            raise RuntimeError(f"job {job.id} has no start or no output")
        imported = float(job.runs[0].meta["stdout"].split()[1])
        found.append(imported - job.started_at.timestamp())
    return found[1:]


def import_torch() -> float:
    """Seconds that a plain interpreter takes to start and import torch."""
    python = os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(ROOT / ".venv-eval" / "bin" / "python"))
    began = time.monotonic()
    subprocess.run([python, "-c", "import torch"], check=True, timeout=120)
    return time.monotonic() - began


def report(name: str, found: list[float]) -> None:
    """One line."""
    ordered = sorted(found)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    print(
        f"{name}, {len(ordered)} times, ms: p50 {statistics.median(ordered) * 1e3:.0f}, p99 {p99 * 1e3:.0f}, "
        f"worst {ordered[-1] * 1e3:.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
