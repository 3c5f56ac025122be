"""The official shapes of every task that fit the device: how long the reference and the best sample solution take.

Runs after everything else in this folder, so that nothing else is on the device. The table comes at the end.
"""

from __future__ import annotations

import os

import pytest
import torch

from tests.gpu.bench import Machine, Task, Timed, tasks, time_task, too_large

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")

#: The CPU type's cases instead: for trying these tests themselves.
SMALL = bool(os.environ.get("KERNEL_RUNNER_GPU_SMALL"))


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.name)
def test_the_official_shapes_are_right_and_timed(task: Task, machine: Machine, timed: list[Timed]) -> None:
    """Reference and right solutions are accepted in every case, at times that the device's figures allow."""
    reason = None if SMALL and task.small_ranks is None else too_large(task, machine)
    if reason is not None:
        pytest.skip(reason)
    lines, verdicts = time_task(task, machine, small=SMALL)
    timed += lines
    refused = {name: found for name, found in verdicts.items() if found.verdict != "accepted"}
    assert not refused, "\n".join(f"{name}: {found.verdict}: {found.message}" for name, found in refused.items())
    for line in lines:
        assert line.best_ns is not None
        assert line.best_ns > 0
        # More than the data sheet by a half is no speed, but a mistake in the figures, the work or the clock.
        assert line.light is None or line.best_ns > line.light[0] / 1.5, line
