"""The daemon's readings of a device reach the judge in its container, and decide over its next group.

What a hot device has slowed does not count, nor what was timed at other clocks than the GPU type demands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from runner.base.config import Config
from runner.base.errors import EvaluationError
from runner.base.gpu_types import ClockPolicy, GpuType, Registry, Vendor
from runner.base.model import Device, JobResult, Mode, Progress, Slot, Verdict
from runner.devices.gate import HealthGate
from runner.devices.vendors.nvidia import Nvml
from runner.evaluation import warm_pool
from runner.evaluation.evaluate import Evaluator
from runner.task_format.model import CaseSet
from sandbox.host.engine import DockerEngine
from tests.fakes.nvml import Nvml as FakeNvml
from tests.fakes.recordings import nvidia
from tests.integration.evaluation.conftest import RIGHT, VECTORADD, evaluator_with
from tests.integration.extras.trainers.kinds.test_modules import GOOD, REFERENCE
from tests.support.noise import again_if_noise
from tests.support.waiting import PATIENCE_S
from tests.unit import samples

TASK = replace(VECTORADD, extra=replace(VECTORADD.extra, cases={"CPU": CaseSet(benchmarks=({"size": 64, "seed": 1},))}))
POWER_CAP, HW_THERMAL = 0x4, 0x40


class _Types:
    """The registry, with a processor that has a device beside it, which is sampled, and whose clocks are demanded."""

    def __init__(self, clocks: ClockPolicy) -> None:
        self._clocks = clocks

    def get(self, name: str) -> GpuType:
        found = Registry.load().get(name)
        return replace(found, sample_every_s=0.05, clocks=self._clocks)


def h100(**answers: Any) -> dict[str, Any]:  # noqa: ANN401 what the driver answers
    """What the driver answers of a fit device."""
    return nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0), **answers)


def evaluate(
    engine: DockerEngine,
    settings: Config,
    answers: dict[str, Any],
    clocks: ClockPolicy = ClockPolicy(),  # noqa: B008 - frozen
    on_progress: Callable[[Progress], None] | None = None,
) -> JobResult:
    """A benchmark on a slot whose device answers so."""
    job = samples.job_on(TASK, RIGHT, mode=Mode.BENCHMARK)
    with evaluator_of(engine, settings, answers, clocks) as (made, slot):
        return again_if_noise(lambda: made.run(job, slot, cancel=threading.Event(), on_progress=on_progress))


@contextmanager
def evaluator_of(
    engine: DockerEngine, settings: Config, answers: dict[str, Any], clocks: ClockPolicy, *, warm: int = 0
) -> Iterator[tuple[Evaluator, Slot]]:
    """An evaluator, and a slot whose device answers so, for which so many containers wait."""
    fake = FakeNvml(lambda: [answers])
    gate_of = {Vendor.NVIDIA.value: lambda: Nvml(fake)}
    device = Device(
        uuid=answers["nvmlDeviceGetUUID"], name="NVIDIA H100 80GB HBM3", vendor=Vendor.NVIDIA.value, index=0
    )
    fake.nvmlInit()
    registry: Any = _Types(clocks)
    with evaluator_with(engine, settings, registry=registry, warm_containers=warm) as made:
        gate = HealthGate(made._quarantine, type_of=lambda slot: registry.get(slot.gpu_type), openers=gate_of)
        made._resources = replace(made._resources, gate=gate)
        yield made, replace(samples.SLOT, devices=(device,))


def group_rows(
    engine: DockerEngine,
    settings: Config,
    answers: dict[str, Any],
    codes: list[str],
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Mapping[str, Any]]:
    """The results of a group of modules on a slot whose device answers so."""
    with evaluator_of(engine, settings, answers, ClockPolicy()) as (made, slot):
        return rows_of(made, slot, codes, on_progress)


def rows_of(
    made: Evaluator, slot: Slot, codes: list[str], on_progress: Callable[[Progress], None] | None = None
) -> list[Mapping[str, Any]]:
    """The results of a group of the batch."""
    group = samples.group(
        *({"id": number, "code": code} for number, code in enumerate(codes)),
        reference=REFERENCE,
        settings={"timed_calls": 5, "inputs": 2, "timeout_s": PATIENCE_S},
    )
    return list(made.run(group, slot, cancel=threading.Event(), on_progress=on_progress).items)


def becomes_hot(answers: dict[str, Any]) -> Callable[[Progress], None]:
    """A device that was fit before the run and is slowed by heat from its first progress on."""

    def hear(_progress: Progress) -> None:
        answers["nvmlDeviceGetCurrentClocksEventReasons"] = HW_THERMAL

    return hear


def test_clocks_are_told_to_the_judge_and_shown(docker_engine: DockerEngine, settings: Config) -> None:
    """A power cap is noted for each case, and no call is set aside for it."""
    answers = h100(nvmlDeviceGetCurrentClocksEventReasons=POWER_CAP)
    result = evaluate(docker_engine, settings, answers)
    assert result.verdict is Verdict.ACCEPTED, result.error
    (step,) = result.report["steps"]
    for case in step["judged"]["details"]["cases"]:
        assert case["clocks"]["readings"] > 0
        assert (case["clocks"]["set_aside"], case["clocks"]["noted"]) == (0, ["sw_power_cap"])
        assert case["clocks"]["sm_clock_mhz"] == {"min": 345, "max": 345}
    (run,) = result.runs
    assert run.system_info["runner"]["devices"][0]["during"]["throttle"] == ["sw_power_cap"]


def test_a_device_that_becomes_hot_is_no_place_to_time_on(docker_engine: DockerEngine, settings: Config) -> None:
    """The run fails on our side, with the reason, so that it is tried again elsewhere."""
    answers = h100()
    with pytest.raises(EvaluationError, match=r"too unsteady to time on: .*hw_thermal_slowdown"):
        evaluate(docker_engine, settings, answers, on_progress=becomes_hot(answers))
    # It is hot still, so nothing is begun on it.
    with pytest.raises(EvaluationError, match=r"slot cpu0 is not fit: .*hw_thermal_slowdown"):
        evaluate(docker_engine, settings, answers)


def test_times_count_at_the_clocks_that_the_gpu_type_demands(docker_engine: DockerEngine, settings: Config) -> None:
    """The result says what was demanded; off that clock nothing is timed, and the run fails on our side."""
    answers = h100(nvmlDeviceGetClockInfo={"1": 1410, "2": 2619})
    result = evaluate(docker_engine, settings, answers, ClockPolicy(sm_mhz=1410, memory_mhz=2619))
    assert result.verdict is Verdict.ACCEPTED, result.error
    (run,) = result.runs
    runner = run.system_info["runner"]
    assert (runner["clocks"]["sm_mhz"], runner["clocks"]["memory_mhz"]) == (1410, 2619)
    assert "clocks_off" not in runner["devices"][0]["during"]
    with pytest.raises(
        EvaluationError, match=r"too unsteady to time on: .*off what its GPU type demands \(sm_clock_off"
    ):
        evaluate(docker_engine, settings, answers, ClockPolicy(sm_mhz=1980))


def test_a_group_on_a_hot_device_is_our_fault(docker_engine: DockerEngine, settings: Config) -> None:
    """Of what is right no time counts, so it is evaluated again; what is wrong is wrong on any device."""
    answers = h100()
    codes = [GOOD, GOOD.replace("torch.relu(", "torch.tanh(")]
    right, wrong = group_rows(docker_engine, settings, answers, codes, becomes_hot(answers))
    assert (right["verdict"], right["stage"], wrong["verdict"]) == ("internal_error", "timing", "wrong_answer"), right
    assert "too unsteady to time on" in right["message"]
    assert "hw_thermal_slowdown" in right["message"]


def test_a_group_does_not_count_where_its_device_broke(docker_engine: DockerEngine, settings: Config) -> None:
    """Memory errors during the run, or before it: all of the group is evaluated again."""
    answers = h100()

    def breaks(progress: Progress) -> None:
        if progress.phase == "candidates":
            answers["nvmlDeviceGetTotalEccErrors"] = 3

    with pytest.raises(EvaluationError, match=r"the result does not count: .*3 memory errors"):
        group_rows(docker_engine, settings, answers, [GOOD], breaks)
    answers["nvmlDeviceGetRemappedRows"] = [0, 0, 0, 1]
    with pytest.raises(EvaluationError, match="slot cpu0 is not fit: "):
        group_rows(docker_engine, settings, answers, [GOOD])


def test_groups_of_a_batch_share_a_container_while_nothing_is_left_on_their_device(
    docker_engine: DockerEngine, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a group leaves there ends its container, and the slot waits; no process of its container lives on."""
    monkeypatch.setattr(warm_pool, "IDLE_S", PATIENCE_S)
    answers = h100()

    def leaves(_progress: Progress) -> None:
        answers["nvmlDeviceGetComputeRunningProcesses"] = [{"pid": 1 << 22, "usedGpuMemory": 1 << 20}]

    container: Any = None
    with evaluator_of(docker_engine, settings, answers, ClockPolicy(), warm=1) as (made, slot):
        made._resources.refill_pool(replace(samples.PLACE, slot=slot))
        for count in (1, 2, 3):
            (row,) = rows_of(made, slot, [GOOD], leaves if count == 3 else None)
            assert row["verdict"] == "accepted", row
            kept = made._warm_pool._pools[slot.name].kept
            assert (kept is None) is (count == 3)
            container = container if kept is None else kept.container
            assert (container.requests, container._closed) == (count, count == 3)
        with pytest.raises(EvaluationError, match=r"slot cpu0 (is not fit|cannot be used): "):
            rows_of(made, slot, [GOOD])
