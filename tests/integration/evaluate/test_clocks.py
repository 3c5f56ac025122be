"""The daemon's readings of a device reach the judge in its container; what a hot device has slowed does not count."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from runner.devices.gate import HealthGate
from runner.devices.nvidia import Nvml
from runner.errors import EvaluationError
from runner.evaluate import EvaluationSettings, Evaluator
from runner.gpus import GpuType, Registry, Vendor
from runner.model import Device, JobResult, Mode, Verdict
from runner.taskdef import extra_to_stored, load_folder, to_stored
from runner.taskdef.model import CaseSet
from sandbox.engine import DockerEngine
from tests.fakes.nvml import Nvml as FakeNvml
from tests.fakes.recordings import nvidia
from tests.plugins.live import ROOT
from tests.unit import samples

TASK = load_folder(ROOT / "tasks" / "vectoradd").task
TASK = replace(TASK, extra=replace(TASK.extra, cases={"CPU": CaseSet(benchmarks=({"size": 64, "seed": 1},))}))
CODE = (ROOT / "tasks" / "vectoradd" / "solutions" / "correct" / "torch_add.py").read_bytes()
POWER_CAP, HW_THERMAL = 0x4, 0x40


class _Types:
    """The registry, with a processor that has a device beside it, which is sampled."""

    def get(self, name: str) -> GpuType:
        return replace(Registry.load().get(name), sample_every_s=0.05, cool_below_c=20, cool_limit_s=0.1)


def evaluate(engine: DockerEngine, settings: EvaluationSettings, answers: dict[str, Any]) -> JobResult:
    """A benchmark on a slot whose device answers so."""
    fake = FakeNvml(lambda: [answers])
    gate_of = {Vendor.NVIDIA: lambda: Nvml(fake)}
    device = Device(
        uuid=answers["nvmlDeviceGetUUID"], name="NVIDIA H100 80GB HBM3", vendor=Vendor.NVIDIA.value, index=0
    )
    fake.nvmlInit()
    registry: Any = _Types()
    made = Evaluator(engine, registry, replace(settings, park_containers=0))
    made._systems["CPU"] = {"hostname": "test-host"}
    made._workshop = replace(made._workshop, gate=HealthGate(made._quarantine, openers=gate_of))
    job = replace(samples.job(mode=Mode.BENCHMARK, code=CODE), task=to_stored(TASK), extra=extra_to_stored(TASK.extra))
    try:
        return made.run(job, replace(samples.SLOT, devices=(device,)), cancel=threading.Event())
    finally:
        made.close()


def test_clocks_are_told_to_the_judge_and_shown(docker_engine: DockerEngine, settings: EvaluationSettings) -> None:
    """A power cap is noted for each case, and no call is set aside for it; that the device was left to cool is said."""
    answers = nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0), nvmlDeviceGetCurrentClocksEventReasons=POWER_CAP)
    result = evaluate(docker_engine, settings, answers)
    assert result.verdict is Verdict.ACCEPTED, result.error
    (step,) = result.report["steps"]
    for case in step["judged"]["details"]["cases"]:
        assert case["clocks"]["readings"] > 0
        assert (case["clocks"]["set_aside"], case["clocks"]["noted"]) == (0, ["sw_power_cap"])
        assert case["clocks"]["sm_clock_mhz"] == {"min": 345, "max": 345}
    (run,) = result.runs
    assert run.system_info["runner"]["devices"][0]["during"]["throttle"] == ["sw_power_cap"]
    # It stays at 31 °C, so the type's limit is waited for, and the run is made all the same.
    assert run.system_info["runner"]["cooled_s"] >= 0.1


def test_a_device_that_is_hot_throughout_is_no_place_to_time_on(
    docker_engine: DockerEngine, settings: EvaluationSettings
) -> None:
    """The run fails on our side, with the reason, so that it is tried again elsewhere."""
    answers = nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0), nvmlDeviceGetCurrentClocksEventReasons=HW_THERMAL)
    with pytest.raises(EvaluationError, match=r"too unsteady to time on: .*hw_thermal_slowdown"):
        evaluate(docker_engine, settings, answers)
