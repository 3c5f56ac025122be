"""A container from its start to the end of its judge: torch imported once, by a template, and once in each process.

The request has no submission, so what it costs is the start of judge and worker. In turns, in the same minutes.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import replace

from runner.evaluation.container_spec import pair_boot
from runner.evaluation.context import Environment
from runner.evaluation.plan import make_probe
from tests.benchmarks.sandbox.containers import MIB, ROOT, bench
from tests.unit import samples

ROUNDS = 15


def main() -> None:
    """Print wall time, processor time and peak memory of both, and their ratios."""
    package = ROOT / "tasks"
    with bench({"tasks/__init__.py": package / "__init__.py", "tasks/harness": package / "harness"}) as at:
        environment = Environment(image=at.spec.image, python=at.spec.python, binds=at.spec.binds)
        request = make_probe(replace(samples.PLACE, environment=environment)).request
        limits = replace(at.spec.limits, memory_bytes=2048 * MIB)
        boot = pair_boot(environment)
        specs = {
            "one import": replace(at.spec, boot=boot, limits=limits),
            "an import in each": replace(at.spec, boot=replace(boot, preload=""), limits=limits),
        }
        rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in specs}
        for _ in range(ROUNDS):
            for name, spec in specs.items():
                begun = time.perf_counter()
                with at.engine.start(spec) as container:
                    report = container.run(request, on_progress=None, cancel=threading.Event())
                wall_s = time.perf_counter() - begun
                if not report.ok:
                    raise RuntimeError(f"the probe failed: {report.message}")
                outcome = report.outcome
                rows[name].append((wall_s, (outcome.cpu_ns or 0) / 1e9, (outcome.peak_memory_bytes or 0) / MIB))
    print(f"medians of {ROUNDS} containers on one core")
    print("| | wall, s | processor, s | peak memory, MiB |\n|---|---|---|---|")
    medians = {name: [statistics.median(column) for column in zip(*found, strict=True)] for name, found in rows.items()}
    for name, (wall_s, cpu_s, memory_mib) in medians.items():
        print(f"| {name} | {wall_s:.2f} | {cpu_s:.2f} | {memory_mib:.0f} |")
    ratios = [one / each for one, each in zip(*medians.values(), strict=True)]
    print(f"| ratio | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
