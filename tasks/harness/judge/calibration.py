"""Measures what a hand-over costs beside the kernel's own time, with kernels whose time is known.

Only meaningful before any byte of a submission is in a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from tasks.harness.shared.arenas import ALIGN_BYTES

from .hand_over import Costs, DeviceCosts, HandOver

#: In this time all that waits has gone to sleep, but for the judge, which spins on.
_LONG_KERNEL_NS = 6_000_000
_VOLUME_BYTES = 4 << 20
_CROWD = 8
#: Calls that calibrate a device.
_DEVICE_CALLS = 40
#: They are made again if their quartiles lie further apart: the device's clocks changed meanwhile.
_STEADY_NS = 2_000.0
#: Times that they are made at most.
_DEVICE_TRIES = 3
#: Calls that try whether processes take turns.
_TURN_CALLS = 6
#: Cycles of their kernels.
_TURN_KERNEL_CYCLES = 400_000
#: Processes take turns if the judge's own work makes a call longer by more than this part of that work.
_TURN_SHARE = 0.7

#: Makes one call of the worker's `calibration_kernel` with a value and the bytes it returns: span and claim, in ns.
CalibrationCall = Callable[[tuple[object, ...], int], tuple[int, int]]


def calibrate(
    call: CalibrationCall,
    *,
    most_bytes: int,
    ranks: int = 1,
    lead_ns: int = 0,
) -> Costs:
    """Measure one way to hand over.

    `call` makes a call on every one of `ranks`; `most_bytes`: of the largest tensor that is handed over; `lead_ns`: how
    long workers have their inputs before the kernel is to begin, and may work already.
    """
    volume = max(4096, min(_VOLUME_BYTES, most_bytes))
    small, large = torch.zeros(64, dtype=torch.uint8), torch.zeros(volume, dtype=torch.uint8)
    many = [torch.zeros(64, dtype=torch.uint8) for _ in range(_CROWD)]

    measure = partial(_measure, call)
    short = measure(24, (0, small, 64), 64)
    long = measure(6, (_LONG_KERNEL_NS, small, 64), 64)
    crowd = measure(8, (0, small, 64, many), 64)
    inward = measure(6, (0, large, 64), 64)
    parts = measure(8, (0, small, [64] * _CROWD), _CROWD * ALIGN_BYTES)
    both = measure(6, (0, large, volume), volume)
    return Costs(
        short=short,
        long=long,
        long_kernel_ns=_LONG_KERNEL_NS,
        per_tensor_ns=max(crowd.p25_ns - short.p25_ns, 0.0) / (_CROWD * ranks),
        per_input_byte_ns=max(inward.p25_ns - short.p25_ns, 0.0) / (volume * ranks),
        per_output_byte_ns=max(both.p25_ns - inward.p25_ns, 0.0) / (volume * ranks),
        per_part_ns=max(parts.p25_ns - short.p25_ns, 0.0) / (_CROWD * ranks),
        floor_ns=Costs.floor_ns + lead_ns,
    )


def calibrate_device(call: CalibrationCall, *, most_bytes: int) -> DeviceCosts:
    """Measure calls that the judge's own work on a device marks, with tensors of at most `most_bytes`."""
    volume = max(4096, min(_VOLUME_BYTES, most_bytes))
    small, large = torch.zeros(64, dtype=torch.uint8), torch.zeros(volume, dtype=torch.uint8)
    hand_overs: list[HandOver] = []
    while len(hand_overs) < _DEVICE_TRIES and (not hand_overs or hand_overs[-1].spread_ns > _STEADY_NS):
        hand_overs.append(_measure(call, _DEVICE_CALLS, (0, small, 64), 64))
    short = min(hand_overs, key=lambda hand_over: hand_over.spread_ns)
    full = _measure(call, _DEVICE_CALLS // 2, (0, large, volume), volume)
    return DeviceCosts(hand_over=short, dirty_ns=max(full.median_ns - short.median_ns, 0.0))


def keeps_turns(call: CalibrationCall, costs: DeviceCosts, *, hold_ns: float) -> bool:
    """Whether the device runs the kernels of one process at a time.

    The judge keeps the device for `hold_ns` after it has released a `call`. If the worker's kernel waits meanwhile, as
    it must, the span is longer by that time. If both ran at once, a worker could compute while the judge fills in the
    inputs. `costs`: of calls for which it does not keep the device.
    """
    small = torch.zeros(64, dtype=torch.uint8)
    held = _measure(call, _TURN_CALLS, (_TURN_KERNEL_CYCLES, small, 64), 64)
    return held.median_ns - costs.hand_over.median_ns > _TURN_SHARE * hold_ns


def _measure(call: CalibrationCall, count: int, value: tuple[object, ...], output_capacity: int) -> HandOver:
    # The first calls of a kind cost more: they touch memory for the first time, and flags may not be in use yet.
    samples = [call(value, output_capacity) for _ in range(count + 2)][2:]
    return HandOver.of([float(outside - claim) for outside, claim in samples])
