"""`gpu test`: what is asked of a slot, what its sandbox may see, and what is said of the times that come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from runner.base.errors import EngineUnavailableError
from runner.base.gpu_types import Registry
from runner.base.model import Device, Job, JobResult, Mode, RunRecord, Slot, Verdict
from runner.cli.finding import Mark
from runner.cli.gpu_test import SlotTest, make_task, try_slot
from runner.evaluation.evaluate import Evaluator

H100 = Registry.load().get("H100")
UUID = "GPU-5a1c8d2e-0001-4c5d-8e9f-0123456789ab"
DEVICE = Device(
    uuid=UUID,
    name="NVIDIA H100 80GB HBM3",
    vendor="nvidia",
    index=3,
    nodes=("/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"),
)
SLOT = Slot(name="nvidia3", gpu_type="H100", devices=(DEVICE,), cpus=(4, 5, 6, 7))
AFTER = {"throttle": ("sw_power_cap",), "sm_clock_mhz": 1980, "temperature_c": 41, "power_w": 312.5}
#: Operations of an H100: copy, fp16, bf16, fp32, as nanoseconds.
GOOD = (370_000.0, 1_700_000.0, 1_700_000.0, 20_000_000.0)


class Scripted:
    """An evaluator that answers for a device which this machine lacks."""

    def __init__(self, medians: tuple[float, ...] = GOOD, *, spread: float = 0.01, **test: Any) -> None:  # noqa: ANN401
        self.medians = medians
        self.spread = spread
        self.test = test
        self.modes: list[Mode] = []

    def run(self, job: Job, _slot: Slot, **_: object) -> JobResult:
        """What a container would have found."""
        self.modes.append(job.mode)
        result = {
            f"benchmark.{number}.{key}": str(median * factor)
            for number, median in enumerate(self.medians)
            for key, factor in (("median", 1.0), ("p10", 1 - self.spread), ("p90", 1 + self.spread))
        }
        run = RunRecord(
            mode=job.mode.value,
            start_offset_ns=0,
            end_offset_ns=1,
            passed=True,
            score_s=None,
            compilation=None,
            meta={},
            result=result,
            system_info={
                "runner": {
                    "sandbox": {"comparisons": {"engine": 40, "kernel": 12}, "unseen": []},
                    "devices": [{"name": DEVICE.name, "after": AFTER}],
                }
            },
        )
        found = JobResult(verdict=Verdict.ACCEPTED, runs=(run,), error=None, report={}, build_ns=0, eval_ns=1)
        return replace(found, **self.test)


@pytest.fixture
def tried() -> Callable[..., SlotTest]:
    """The test of a slot whose containers a script stands for."""

    def run(scripted: Any) -> SlotTest:  # noqa: ANN401 - whatever has `run`
        return try_slot(scripted, H100, SLOT, cancel=None)  # type: ignore[arg-type]  # not cancelled

    return run


def marks(found: SlotTest) -> dict[str, tuple[Mark, str]]:
    """Name -> mark and text."""
    return {finding.name: (finding.mark, finding.found) for finding in found.findings}


@pytest.mark.parametrize(
    ("medians", "spread", "name", "mark"),
    [
        ((700_000.0, *GOOD[1:]), 0.01, "copy", Mark.WARNING),
        ((200_000.0, *GOOD[1:]), 0.01, "copy", Mark.FAILED),
        ((GOOD[0], 5_000_000.0, *GOOD[2:]), 0.01, "matmul fp16", Mark.WARNING),
        ((GOOD[0], 500_000.0, *GOOD[2:]), 0.01, "matmul fp16", Mark.FAILED),
        (GOOD, 0.2, "noise", Mark.WARNING),
    ],
)
def test_what_is_too_slow_too_fast_or_unsteady_is_said(
    tried: Callable[..., SlotTest], medians: tuple[float, ...], spread: float, name: str, mark: Mark
) -> None:
    """Slow is a warning with where to look; faster than memory or units can be means that the type's file is wrong."""
    found = tried(Scripted(medians, spread=spread))
    (finding,) = [finding for finding in found.findings if finding.mark is not Mark.OK]
    assert (finding.name, finding.mark) == (name, mark)
    assert finding.remedy


def test_a_sandbox_that_shows_something_else_ends_the_test(tried: Callable[..., SlotTest]) -> None:
    """What it shows is the message; nothing is timed there."""
    scripted = Scripted(verdict=Verdict.WRONG_ANSWER, error="test 1 of 3: sees 2 devices, expected 1")
    found = tried(scripted)
    assert scripted.modes == [Mode.TEST]
    (finding,) = found.findings
    assert (finding.mark, finding.found) == (Mark.FAILED, "wrong_answer: test 1 of 3: sees 2 devices, expected 1")


def test_an_engine_that_goes_away_is_a_line(tried: Callable[..., SlotTest]) -> None:
    """And the exit code says that it is the infrastructure."""

    class Away(Evaluator):
        def __init__(self) -> None:
            pass

        def run(self, *_: object, **__: object) -> JobResult:
            raise EngineUnavailableError("no container engine answers")

    (finding,) = tried(Away()).findings
    assert (finding.found, finding.infrastructure) == ("no container engine answers", True)


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ({}, ""),
        ({"devices": 2}, "sees 2 devices, expected 1"),
        ({"numbers": [2, 3]}, "sees device nodes [2, 3], expected [3]"),
        ({"cpus": [3, 4]}, "may use cores [3, 4], expected none but [4, 5, 6, 7]"),
        ({"uuids": ["b"]}, "sees b, expected a1c8d2e-0001"),
    ],
)
def test_the_sandbox_must_show_the_slot_and_nothing_else(
    seen: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices by number, node and UUID, cores by number: one too many is a wrong answer that says which."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    slot = replace(SLOT, devices=(replace(DEVICE, uuid="GPU-a1c8d2e-0001"),))
    task = make_task(H100, slot).task
    case = dict(task.tests[0])
    module: dict[str, Any] = {}
    exec(task.files["reference.py"], module)  # noqa: S102 - the file under test, which no import finds
    data = module["generate_input"](**case)
    right = {"devices": 1, "numbers": [3], "uuids": ["a1c8d2e-0001"], "cpus": [4, 6]}
    text = json.dumps(right | seen).encode()
    output = torch.zeros(4096, dtype=torch.uint8)
    output[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    assert module["check_implementation"](data, output) == (not message, message)
