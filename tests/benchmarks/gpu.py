"""What knowing the devices costs: detection, the health gate, and the sampler beside a run that is timed.

On the devices that are here; on a host without any, on answers of eight H100 that a fake library gives, which says so:
then it is the cost of our own code, and the driver's share is missing. The run beside the sampler is a process of its
own on one core, as the judge's container is; its pieces of work beside a reading are held against those beside none.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from runner.devices import list_devices, types_of
from runner.devices.gate import HealthGate
from runner.devices.quarantine import Quarantine
from runner.gpu_types import Registry
from runner.model import Device, Slot
from tests.fakes.nvml import Nvml
from tests.fakes.recordings import nvidia

ROUNDS = 50
#: Samples come this often; a type that asks for them names a period of its own.
EVERY_S = 0.1
#: How long each kind of work is looked at beside the sampler, in turns of so many seconds with and without it.
WORK_S, TURN_S = 60.0, 2.0
#: How long the sampler's own time is looked at.
OWN_S = 5.0
#: The timed run: short pieces of work, one after the other on one core. Says when each began and how long it took, in
#: ns, as pairs of 64-bit integers: a piece is a call of a kernel to a judge, and as short.
WORK = """
import hashlib, os, sys, time
from array import array
os.sched_setaffinity(0, {int(sys.argv[1])})
data, room = bytes(1 << 18), bytearray(1 << 22)
other = bytes(len(room))
def hashing():
    hashlib.sha256(data).digest()
def copying():
    room[:] = other
work, clock, found = locals()[sys.argv[2]], time.perf_counter_ns, array("q")
end = clock() + int(sys.argv[3])
while (began := clock()) < end:
    work()
    found.extend((began, clock() - began))
sys.stdout.buffer.write(found.tobytes())
"""
KINDS = {"hashing": "256 KiB hashed", "copying": "4 MiB copied"}


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
    gate = HealthGate(Quarantine(), type_of=lambda slot: registry.get(slot.gpu_type))
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
    """A run on one core with all devices sampled from the others."""
    cores = sorted(os.sched_getaffinity(0))
    core = cores[-1]
    every = Slot(
        name="all", gpu_type="H100", devices=tuple(device for slot in slots for device in slot.devices), cpus=(core,)
    )
    print(f"sampler, every {EVERY_S:g} s, {len(every.devices)} devices, beside a run on one of {len(cores)} cores:")
    began_s = time.process_time()
    with gate.sampling(every, EVERY_S) as sampler:
        time.sleep(OWN_S)
    samples = 0 if sampler is None else sum(sampler.summary(number)["samples"] for number in range(len(every.devices)))
    own_s = time.process_time() - began_s
    each_s = own_s / max(samples, 1)
    print(f"  its own: {own_s / OWN_S:.2%} of another core, {each_s * 1e3:.3f} ms for a sample of a device")
    for kind, what in KINDS.items():
        pieces, read_ns = _beside(gate, every, core, kind)
        round_ns = round(each_s * 1e9 * len(every.devices))
        print(f"  {what}: {_cost(pieces, read_ns, each_ns=round_ns)}")


def _beside(gate: HealthGate, every: Slot, core: int, kind: str) -> tuple[list[tuple[int, int]], list[int]]:
    """Pieces of work, each with its beginning and length in ns, and when all devices had been read."""
    read_ns: list[int] = []
    program = [sys.executable, "-c", WORK, str(core), kind, str(round(WORK_S * 1e9))]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process, ThreadPoolExecutor(1) as reader:
        if process.stdout is None:
            raise RuntimeError("a process without a pipe")
        said = reader.submit(process.stdout.read)
        while not said.done():
            with gate.sampling(every, EVERY_S, on_round=lambda _: read_ns.append(time.perf_counter_ns())):
                time.sleep(TURN_S)
            time.sleep(TURN_S)
    numbers = array("q", said.result())
    return list(zip(numbers[::2], numbers[1::2], strict=True)), read_ns


def _cost(pieces: Sequence[tuple[int, int]], read_ns: Sequence[int], *, each_ns: int) -> str:
    """How much longer the pieces beside a reading took, and what that comes to.

    Both sides lie in the same tenths of a second, so that what the machine does otherwise falls on both alike: whole
    runs with and without a sampler differ by far more than it costs. A hundredth at either end is left out.
    """
    beside: list[int] = []
    apart: list[int] = []
    for began, took in pieces:
        # The first reading that ended after this piece began.
        at = bisect_left(read_ns, began)
        overlaps = at < len(read_ns) and read_ns[at] - each_ns < began + took
        (beside if overlaps else apart).append(took)
    slower = _trimmed(beside) / _trimmed(apart) - 1
    spread = 2 * _error(beside, apart)
    # While a sampler is at work: half of the time.
    share = 2 * sum(beside) / sum(took for _, took in pieces)
    low, high = (share * (slower + sign * spread) for sign in (-1, 1))
    return (
        f"{slower:+.2%} during {share:.2%} of the time = {share * slower:+.4%} of a run"
        f" (95 %: {low:+.4%} to {high:+.4%}; limit 0.2%);"
        f" {len(beside)} and {len(apart)} pieces of {statistics.median(apart) / 1e3:.0f} µs"
    )


def _trimmed(found: Sequence[int]) -> float:
    return statistics.fmean(_kept(found))


def _kept(found: Sequence[int]) -> Sequence[int]:
    ordered = sorted(found)
    cut = len(ordered) // 100
    return ordered[cut : len(ordered) - cut]


def _error(beside: Sequence[int], apart: Sequence[int]) -> float:
    """The standard error of the quotient of two trimmed means."""
    sides = [_kept(found) for found in (beside, apart)]
    return math.sqrt(sum((statistics.stdev(kept) / statistics.fmean(kept)) ** 2 / len(kept) for kept in sides))
