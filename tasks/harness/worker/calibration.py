"""The kernel that the worker calls before a submission is loaded, so that the judge can calibrate the hand-over."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import torch


def calibration_kernel(data: tuple[Any, ...]) -> Any:
    """The kernel before a submission is loaded: spin for data[0] ns, return a copy of data[1][: data[2]].

    If data[2] is a list, return a list with one copy for each number in it.
    """
    spin_ns, payload, keep, *_ = data
    if payload.is_cuda:
        # Cycles of a clock between 1 and 2 GHz: at least a third of the time that is asked for.
        torch.cuda._sleep(int(spin_ns))  # type: ignore[no-untyped-call]  # noqa: SLF001 torch lacks both
        spin_ns = 0
    until = perf_counter_ns() + spin_ns
    while perf_counter_ns() < until:
        pass
    if isinstance(keep, list):
        return [payload[:each].clone() for each in keep]
    return payload[:keep].clone()
