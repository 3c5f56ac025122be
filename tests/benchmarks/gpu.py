"""What knowing the devices costs: detection, the health gate, and the sampler beside a run that is timed.

On the devices that are here; on a host without any, on answers of eight H100 that a fake library gives, which says so:
then it is the cost of our own code, and the driver's share is missing. The run beside the sampler is a process of its
own on one core, as the judge's container is; rounds with and without the sampler take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

from runner.devices import list_devices, types_of
from runner.devices.gate import HealthGate
from runner.gpus import Registry
from runner.model import Device, Slot
from runner.quarantine import Quarantine
from tests.fakes.nvml import Nvml
from tests.fakes.recordings import nvidia

ROUNDS = 50
#: Samples come this often; a type that asks for them names a period of its own.
EVERY_S = 0.1
PAIRS = 100
#: How long the sampler's own time is looked at.
OWN_S = 5.0
#: A round of the timed run: hashing, which needs one core and nothing of the host's memory.
WORK = """
import hashlib, os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
data = bytes(1 << 20)
for _ in sys.stdin:
    began, own = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(250):
        hashlib.sha256(data).digest()
    print(time.perf_counter_ns() - began, time.process_time_ns() - own, flush=True)
"""


def main() -> None:
    """Measure and print."""
    fake = not list_devices().devices
    if fake:
        answers = [nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0), number=number) for number in range(8)]
        sys.modules["pynvml"] = Nvml(lambda: answers)
    devices = list_devices().devices
    where = "answers of a fake library: our own code's share" if fake else "the devices of this host"
    print(f"{len(devices)} devices, {devices[0].name}: {where}")
    registry = Registry.load()
    slots = [_slot(device) for device in devices]
    detection = _milliseconds(lambda: [types_of(registry, device) for device in list_devices().devices])
    _print("detection, all devices", detection, limit_ms=200)
    _print("reading the GPU types", _milliseconds(Registry.load))
    gate = HealthGate(Quarantine())
    try:
        _print("health gate, first look at a device", [_once(partial(gate.inspect, slot)) for slot in slots])
        looks = [took for slot in slots for took in _milliseconds(partial(gate.inspect, slot))]
        _print("health gate, a device", looks, limit_ms=300)
        _sampler(gate, slots)
    finally:
        gate.close()


def _slot(device: Device) -> Slot:
    """A slot of one device and the first core."""
    return Slot(name=f"{device.vendor}{device.index}", gpu_type="H100", devices=(device,), cpus=(0,))


def _once(call: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - began) / 1e6


def _milliseconds(call: Callable[[], object]) -> list[float]:
    return [_once(call) for _ in range(ROUNDS)]


def _print(what: str, found: Sequence[float], *, limit_ms: float | None = None) -> None:
    ordered = sorted(found)
    limit = "" if limit_ms is None else f" (limit {limit_ms:g})"
    high = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    print(f"{what}: median {statistics.median(ordered):.2f} ms, p95 {high:.2f} ms, worst {ordered[-1]:.2f} ms{limit}")


def _sampler(gate: HealthGate, slots: Sequence[Slot]) -> None:
    """A run on one core with all devices sampled from the others, and without."""
    cores = sorted(os.sched_getaffinity(0))
    core = cores[-1]
    every = Slot(
        name="all", gpu_type="H100", devices=tuple(device for slot in slots for device in slot.devices), cpus=(core,)
    )
    with subprocess.Popen(
        [sys.executable, "-c", WORK, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process without pipes")

        def round_ns() -> tuple[int, int]:
            print(file=process.stdin, flush=True)
            wall, own = process.stdout.readline().split()  # type: ignore[union-attr]  # checked above
            return int(wall), int(own)

        round_ns()
        found: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        for number in range(PAIRS):
            for sampled in (True, False) if number % 2 else (False, True):
                with gate.sampling(every, EVERY_S) if sampled else nullcontext():
                    found[sampled].append(round_ns())
        process.stdin.close()
    print(f"sampler, every {EVERY_S:g} s, {len(every.devices)} devices, beside a run on one of {len(cores)} cores:")
    began_s = time.process_time()
    with gate.sampling(every, EVERY_S) as sampler:
        time.sleep(OWN_S)
    samples = 0 if sampler is None else sum(sampler.summary(number)["samples"] for number in range(len(every.devices)))
    own = time.process_time() - began_s
    print(
        f"  its own: {own / OWN_S:.2%} of another core, {own / max(samples, 1) * 1e3:.3f} ms for a sample of a device"
    )
    # The core's own time leaves out what other programs took of the core, which is no sampler's doing.
    for number, kind in enumerate(("from start to end", "the core's own time")):
        with_it, without = ([pair[number] for pair in found[sampled]] for sampled in (True, False))
        shares = ", ".join(f"{name} {pick(with_it) / pick(without) - 1:+.3%}" for name, pick in _PICKS.items())
        print(
            f"  {kind}: {shares} (limit 0.2%); median {statistics.median(without) / 1e6:.0f} ms, rounds without it "
            f"differ by {_spread(without):.1%}"
        )


def _spread(found: Sequence[int]) -> float:
    low, *_, high = statistics.quantiles(found, n=10)
    return (high - low) / statistics.median(found)


_PICKS: dict[str, Callable[[Sequence[int]], float]] = {"least": min, "median": statistics.median}
