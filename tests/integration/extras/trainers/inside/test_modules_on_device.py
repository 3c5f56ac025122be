"""Groups of modules on a device whose time is virtual (`tests.support.emulated_gpu`): figures are exact.

Judge and workers run as they are. Each candidate's worker is another process, and the device is measured once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner.extras.trainers.inside.judge.request import GroupRequest
from tasks.harness.local import Start
from tests.acceptance.modules.problems import PROBLEMS, candidate
from tests.support import emulated_gpu
from tests.support.local_modules import SuccessivePair, evaluate, group_of
from tests.support.waiting import PATIENCE_S

_REFERENCE_NS = 400_000


def _spending(text: str, nanoseconds: int) -> str:
    """The text of a module whose calls take so long on the device."""
    return re.sub(
        r"^( +)return torch\.relu",
        rf"\1from tests.support import emulated_gpu\n\1emulated_gpu.spend_ns({nanoseconds})\n\1return torch.relu",
        text,
        count=1,
        flags=re.MULTILINE,
    )


_REFERENCE = _spending(PROBLEMS["linear"], _REFERENCE_NS)
_FASTER = _spending(candidate("linear"), _REFERENCE_NS // 2)
#: Takes as long as the reference, and claims half.
_FORGES = (
    "import torch\n"
    "honest = torch.cuda.Event.elapsed_time\n"
    "torch.cuda.Event.elapsed_time = lambda self, end: honest(self, end) / 2\n"
    + _spending(candidate("linear"), _REFERENCE_NS)
)


def _group(*codes: str, reference: str = _REFERENCE, **settings: Any) -> Mapping[str, Any]:  # noqa: ANN401 any setting
    return group_of(reference, *codes, **{"timed_calls": 6, "inputs": 2, "timeout_s": PATIENCE_S, **settings})


def _judged(*codes: str, ahead: Start | None = None, **settings: Any) -> list[dict[str, Any]]:  # noqa: ANN401 any setting
    return evaluate(_group(*codes, **settings), start=emulated_gpu.start, ahead=ahead, device="cuda")


@pytest.mark.parametrize("ahead", [None, emulated_gpu.start_ahead], ids=["", "ahead"])
def test_times_are_those_of_the_device_and_bounded_by_the_judge(ahead: Start | None) -> None:
    """Of the reference's worker and of each candidate's, whenever it has made its context; forging gains nothing."""
    faster, forges = _judged(_FASTER, _FORGES, ahead=ahead)
    assert (faster["verdict"], faster["timing"]) == ("accepted", "audited"), faster
    assert faster["reference_ns"] == pytest.approx(_REFERENCE_NS, abs=10)
    assert faster["candidate_ns"] == pytest.approx(_REFERENCE_NS / 2, abs=10)
    assert faster["speedup"] == faster["speedup_device"] == pytest.approx(2.0, rel=1e-3)
    assert (faster["speedup_low"], faster["speedup_high"]) == (pytest.approx(2.0, rel=1e-3),) * 2
    assert faster["device"] == "CUDA, emulated on the CPU"
    assert [faster[f"{side}_stats"]["calls"] for side in ("candidate", "reference")] == [6, 10]
    assert (forges["verdict"], forges["timing"]) == ("accepted", "measured"), forges
    assert forges["speedup"] == pytest.approx(1.0, rel=0.01)
    assert forges["speedup_low"] <= 1.0 <= forges["speedup_high"]


def test_inputs_that_a_timed_call_changes_are_seen() -> None:
    """The judge looks at its own memory, whatever the worker says of its inputs."""
    late = (
        "OUTPUTS.append(torch.relu(self.l(x)))\n"
        "        if len(OUTPUTS) > 8:\n            x.zero_()\n        return OUTPUTS[-1]"
    )
    (row,) = _judged("OUTPUTS = []\n" + _FASTER.replace("return torch.relu(self.l(x))", late))
    assert (row["verdict"], row["stage"]) == ("wrong_answer", "timing"), row
    assert "in a timed call: input tensor 0 was changed" in row["message"]


def test_workers_that_ended_while_they_waited_cost_no_candidate_anything() -> None:
    """Another takes the place of each."""
    ended = partial(emulated_gpu.start_ahead, first=("os:_exit", ()))
    rows = _judged(_FASTER, _FASTER, _FASTER, ahead=ended)
    assert [(row["verdict"], row["timing"]) for row in rows] == [("accepted", "audited")] * 3, rows


#: The judge's calls are slow until the workers ahead have their contexts, which wait for the judge's second call.
_SLOW_MEANWHILE = """
import os, pathlib, sys, time
place, calls = pathlib.Path({place!r}), []
def be_slow():
    if "runner.extras.trainers.inside.judge.evaluation" in sys.modules and not (place / "made").exists():
        calls.append(1)
        (place / str(len(calls))).touch()
        time.sleep({slow_s})
"""


def made_late(arguments: Sequence[str]) -> None:
    """In a worker ahead: make the context when the judge is in its second call."""
    place, *rest = arguments
    while not (Path(place) / "2").exists():
        time.sleep(0.01)
    (Path(place) / "made").touch()
    emulated_gpu.install(rest)


# A call may take 2 s here, and 20 timed ones 0.75 s each.
@pytest.mark.parametrize("slow_s", [1.5, 2.5])
def test_contexts_in_making_make_no_reference_slow(tmp_path: Path, slow_s: float) -> None:
    """It is measured beside none; else it would be refused, or timed in fewer calls."""
    ahead = partial(emulated_gpu.start_ahead, first=(f"{__name__}:made_late", (str(tmp_path), "ahead", str(512 << 20))))
    slow = _SLOW_MEANWHILE.format(place=str(tmp_path), slow_s=slow_s)
    forward = "    def forward(self, x):\n"
    assert forward in _REFERENCE
    reference = slow + _REFERENCE.replace(forward, f"{forward}        be_slow()\n")
    group = _group(_FASTER, _FASTER, reference=reference, timed_calls=20, timeout_s=30)
    rows = evaluate(group, start=emulated_gpu.start, ahead=ahead, device="cuda")
    assert (tmp_path / "made").exists()
    assert [(row["verdict"], row["candidate_stats"]["calls"]) for row in rows] == [("accepted", 20)] * 2, rows


def test_a_device_that_does_not_say_what_is_free_is_our_fault() -> None:
    """When the device is prepared the reference has run in the judge's process, and is not blamed."""
    reference = "import torch\ntorch.cuda.mem_get_info = None\n" + _REFERENCE
    (row,) = evaluate(_group(_FASTER, reference=reference), start=emulated_gpu.start, device="cuda")
    assert row["verdict"] == "internal_error", row
    assert "does not report its memory" in row["message"]


@pytest.mark.parametrize("number", ["", ", random.random()"], ids=["marked", "by message"])
def test_calls_by_message_are_measured_where_there_are_some(number: str) -> None:
    """Where a number in the inputs changes. Marked calls are measured always; before any candidate's code runs."""
    reference = "import random\n" + _REFERENCE.replace("torch.randn(8, 16)", f"torch.randn(8, 16){number}")
    assert "torch.randn(8, 16)" in _REFERENCE
    faster, reference = (text.replace("(self, x)", "(self, x, _=0)") for text in (_FASTER, reference))
    group = _group(faster, reference=reference)
    with SuccessivePair(start=emulated_gpu.start) as pair:
        (step,) = pair.run(GroupRequest(group=group, device="cuda").to_payload()).steps
    assert step.judged is not None
    assert step.judged.verdict == "accepted", step.judged.message
    assert set(step.judged.details["calibration"]) == ({"device", "message"} if number else {"device"})


def test_a_baseline_that_the_device_lacks_makes_the_reference_invalid() -> None:
    """With the device's own sentence, and no verdict on the candidate."""
    (row,) = _judged(_FASTER, further_baselines=["graphs"])
    assert (row["verdict"], row["stage"]) == ("invalid", "reference"), row
    assert "the reference does not run" in row["message"]
