"""Groups of PyTorch modules on a real accelerator: times, every baseline, and the rate; without a container."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runner.extras.boards.fork_server import ForkServers
from tasks.harness.emulate import asked
from tests.gpu.group_times import measure, start_ahead
from tests.gpu.recording import measured
from tests.support.local_modules import evaluate

_MODULE = """
import torch
import torch.nn as nn

class {name}(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x))
"""
_REFERENCE = _MODULE.format(name="Model") + (
    "\ndef get_inputs():\n    return [torch.randn(1024, 1024)]\n\ndef get_init_inputs():\n    return [1024]\n"
)
_COPY = _MODULE.format(name="ModelNew")
_WRONG = _COPY.replace("torch.relu(", "torch.tanh(")

#: Groups of eight that are timed, and what is asked for: five candidates a second.
_GROUPS, _CANDIDATE_S = 4, 0.2

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")


def _judged(*codes: str, **settings: Any) -> list[dict[str, Any]]:  # noqa: ANN401 any setting
    group = {
        "kind": "module",
        "reference": _REFERENCE,
        "settings": {"timed_calls": 20, "inputs": 3, "timeout_s": 60.0, **settings},
        "candidates": [{"id": number, "code": code} for number, code in enumerate(codes)],
    }
    return evaluate(group, device="cuda", memory_bytes=4 << 30)


def test_a_copy_of_the_reference_is_as_fast(audited: list[str]) -> None:
    """By the device's own time, within its interval; a wrong one is refused, and harms no neighbour."""
    copy, wrong, again = _judged(_COPY, _WRONG, _COPY)
    assert [row["verdict"] for row in (copy, wrong, again)] == ["accepted", "wrong_answer", "accepted"], copy
    for row in (copy, again):
        audited.append(
            f"module, copy of its reference: {row['speedup_low']} to {row['speedup_high']}, {row['timing']}, "
            f"device {row['speedup_device']}"
        )
        assert row["speedup_low"] <= 1.0 <= row["speedup_high"], row


@pytest.mark.parametrize("baseline", ["compile", "tf32", "graphs"])
def test_a_baseline_is_timed(baseline: str, audited: list[str]) -> None:
    """Beside the eager one."""
    if torch.version.cuda is None and baseline == "tf32":
        pytest.skip("TF32 is NVIDIA's")
    if asked() and baseline == "graphs":
        pytest.skip("graphs are not emulated")
    (row,) = _judged(_COPY, further_baselines=[baseline])
    assert row["verdict"] == "accepted", row
    found = row["baselines"][baseline]
    audited.append(f"module, speed-up over {baseline}: {found['speedup']} ({found['reference_ns'] / 1e3:.1f} µs)")
    assert found["speedup"] > 0


def test_what_a_candidate_takes(audited: list[str]) -> None:
    """In groups of eight tiny modules, one after the other, by processes that have imported torch, as a container has.

    A figure: no time makes this test fail. Queue and container are not in it.
    """
    with ForkServers() as servers:
        groups = measure(_GROUPS, size=8, start=servers.start, ahead=start_ahead(servers))
    assert groups.verdicts == {"accepted": 6 * _GROUPS, "wrong_answer": _GROUPS, "compile_error": _GROUPS}
    measured("a candidate for a module, in groups of eight", groups.each_s, at_most_s=_CANDIDATE_S)
    audited.append(f"modules: {groups.table()}")
