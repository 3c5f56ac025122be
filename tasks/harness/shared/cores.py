"""Divides the cores: the judge has one to itself, the submission has all others.

Two processes that wait for each other on one core measure the scheduler. A woken process may wait for the next tick (4
ms) while a thread of the other spins. So the last of their cores is the judge's while a call is under way. The worker
leaves it at its start, before torch counts cores. With a single core both share it, and neither spins. Standard library
only, because both sides import it before torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def judge_core() -> int | None:
    """The core that is kept for the judge; None where there is only one core."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[-1] if len(cores) > 1 else None


def leave_judge_core() -> bool:
    """Confine the calling process to the worker's cores. False if the judge's core is the only one."""
    core = judge_core()
    if core is None:
        return False
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {core})
    return True


def stay_on(core: int | None) -> None:
    """Confine the calling thread to one core, and threads it starts later; None leaves it where it is."""
    if core is not None:
        os.sched_setaffinity(0, {core})


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Confine the calling thread to one core for a while; None leaves it where it is."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
