"""From the create request to `ready`, in seconds; every other time without looking at what the engine made."""

from __future__ import annotations

import time
from unittest import mock

from sandbox.host import engine as engine_module
from tests.benchmarks.sandbox.containers import bench, percentiles

ROUNDS = 40


def main() -> None:
    """Print both, and what the comparison itself takes."""
    with bench() as at:
        times: dict[str, list[float]] = {"attested": [], "not attested": []}
        looking: list[float] = []
        attest = engine_module._attest

        def timed(*given: object) -> object:
            begun = time.perf_counter()
            found = attest(*given)  # type: ignore[arg-type]  # handed through as it is
            looking.append(time.perf_counter() - begun)
            return found

        for number in range(2 * ROUNDS):
            name = "attested" if number % 2 else "not attested"
            instead = timed if number % 2 else lambda *_: {}
            with mock.patch.object(engine_module, "_attest", instead):
                begun = time.perf_counter()
                with at.engine.start(at.spec):
                    times[name].append(time.perf_counter() - begun)
        for name, found in times.items():
            print(f"start, {name}, s: {percentiles(found)}")
        print(f"comparing what the three sources report, s: {percentiles(looking)}")
