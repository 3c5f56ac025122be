"""The speed of light, and the floor under which a time cannot be true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.gpu_types import Dtype, Figures, GpuType, Registry, Vendor
from runner.evaluation.speed_of_light import MATH_SLACK, MEMORY_SLACK, speed_of_light
from runner.task_format import load_folder
from runner.task_format.model import Case, Extra, Harness, Task
from tests.unit import samples

TASKS = Path(__file__).resolve().parents[3] / "tasks" / "problems"
#: 100 and 200 TFLOP/s, 1 TB/s, 1 MiB of cache.
FIGURES = Figures(
    memory_gib=1, l2_mib=1, bandwidth_gb_s=1000, peak_tflops={Dtype.BF16: 100, Dtype.FP8: 200, Dtype.FP32: 10}
)
GPU = GpuType(name="G", vendor=Vendor.NVIDIA, device=FIGURES)
MIB = 1 << 20


def task(*, multi_gpu: bool = False, moved: str | None = None, **work: Any) -> Task:  # noqa: ANN401 - keys of runner.yml
    """A task whose cases have this work."""
    extra = Extra(harness=Harness.BUILTIN, bytes=moved, **work)
    return replace(samples.task(multi_gpu=multi_gpu), extra=extra)


@pytest.mark.parametrize(
    ("flops", "moved", "sol_ns", "limit"),
    [
        ("1e8", None, 1000, "math"),
        (None, "2e6", 2000, "memory"),
        ("1e8", "2e6", 2000, "memory"),
        ("3e8", "2e6", 3000, "math"),
    ],
)
def test_the_speed_of_light_is_the_larger_of_two_times(
    flops: str | None, moved: str | None, sol_ns: float, limit: str
) -> None:
    """Operations at the rate of the task's data type, bytes at the bandwidth of memory."""
    light = speed_of_light(task(flops=flops, math=Dtype.BF16, moved=moved), {}, GPU)
    assert light.sol_ns == pytest.approx(sol_ns)
    assert light.limit == limit
    assert light.fraction(2 * sol_ns) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("math", "rate"),
    [
        (Dtype.FP4, 200),  # no units of its own: its values fit eight bits
        (Dtype.FP8, 200),
        (Dtype.BF16, 100),
        (Dtype.FP16, 10),  # bfloat16 has too few digits for it
        (Dtype.TF32, 10),
        (Dtype.FP32, 10),
        (Dtype.INT8, 100),
        (Dtype.FP64, None),
        (None, 200),
    ],
)
def test_work_is_done_by_the_fastest_units_that_hold_its_data_type(math: Dtype | None, rate: float | None) -> None:
    """A device without units for a type uses wider ones; a type that nothing holds has no speed of light."""
    light = speed_of_light(task(flops="1e9", math=math), {}, GPU)
    assert light.sol_ns == (None if rate is None else pytest.approx(1e9 / rate / 1e3))
    # The floor asks for no data type: what is precise enough, the check decides.
    assert light.floor is not None
    assert light.floor.ns == pytest.approx(1e9 / 200 / MATH_SLACK / 1e3)


@pytest.mark.parametrize(
    ("moved", "written", "crossing"),
    [
        (f"{10 * MIB}", None, 8 * MIB),
        (f"{10 * MIB}", f"{4 * MIB}", 8 * MIB),
        (f"{10 * MIB}", f"{MIB // 2}", 8.5 * MIB),
        (f"{10 * MIB}", f"{10 * MIB}", 9 * MIB),
        (f"{2 * MIB}", None, 0),
        (f"{2 * MIB}", f"{MIB}", 0),
        (f"{2 * MIB}", f"{MIB // 2}", 0.5 * MIB),
    ],
)
def test_what_caches_may_hold_is_no_part_of_the_floor(moved: str, written: str | None, crossing: float) -> None:
    """Inputs may lie in the cache when the clock starts, outputs when it stops."""
    floor = speed_of_light(task(moved=moved, written=written), {}, GPU).floor
    assert (None if floor is None else floor.ns) == (
        None if crossing == 0 else pytest.approx(crossing / 1000 / MEMORY_SLACK)
    )


def test_the_higher_floor_counts_and_says_what_it_is() -> None:
    """The refusal has the time, the floor, the limit and the sum behind it."""
    light = speed_of_light(task(flops="1e8", moved=f"{100 * MIB}"), {}, GPU)
    assert light.floor is not None
    assert (light.floor.limit, light.floor.refusal(light.floor.ns)) == ("memory", None)
    assert light.floor.refusal(1000) == (
        "its mean time of 1 µs is impossible: the case needs at least 85.63 µs for memory (1.028e+08 bytes "
        "must pass the memory of G whatever its caches hold, and it moves at most 1.2e+12 per second)"
    )
    floor = speed_of_light(task(flops="1e9"), {}, GPU).floor
    assert floor is not None
    assert floor.refusal(1) == (
        "its mean time of 1 ns is impossible: the case needs at least 3.333 µs for math (1e+09 operations, and G "
        "does at most 3e+14 of any kind per second)"
    )


def test_ranks_share_the_work_and_a_slot_lends_all_its_devices() -> None:
    """Rates are per device: times the ranks for the speed of light, times all devices of a slot for the floor.

    Two ranks on a CPU are no faster than one.
    """
    two, cpu = replace(GPU, count=2), replace(GPU, vendor=Vendor.NONE)
    case: Case = {"world_size": 2}
    one = speed_of_light(task(flops="1e8"), {}, GPU)
    several = speed_of_light(task(flops="1e8", multi_gpu=True), case, two)
    assert one.sol_ns is not None
    assert one.floor is not None
    assert several.floor is not None
    assert (several.sol_ns, several.floor.ns) == (one.sol_ns / 2, one.floor.ns / 2)
    # Two caches, two memories.
    floor = speed_of_light(task(moved=f"{10 * MIB}", multi_gpu=True), case, two).floor
    assert floor is not None
    assert floor.ns == pytest.approx((10 - 4) * MIB / 2000 / MEMORY_SLACK)
    # A task of one device in a slot of two may use the other as well.
    alone = speed_of_light(task(flops="1e8"), {}, two)
    assert (alone.sol_ns, alone.floor) == (one.sol_ns, several.floor)
    lights = [speed_of_light(task(flops="1e8", multi_gpu=True), {"world_size": ranks}, cpu) for ranks in (1, 2)]
    assert lights[0].sol_ns == lights[1].sol_ns


def test_a_product_is_measured_by_its_own_figures() -> None:
    """The slot's device decides: a PCIe board is not held against an SXM module."""
    gpu, work = Registry.load().get("H100"), task(moved="3.9e9")
    assert speed_of_light(work, {}, gpu, device_name="NVIDIA H100 NVL").sol_ns == pytest.approx(1e6)
    assert speed_of_light(work, {}, gpu, device_name="NVIDIA H100 PCIe").sol_ns == pytest.approx(3.9e6 / 2.039)


def test_the_sentence_in_the_documentation_is_what_is_said() -> None:
    """docs/harness.md quotes it, for the last benchmark of vectoradd on an H100."""
    task = load_folder(TASKS / "vectoradd").task
    floor = speed_of_light(task, task.benchmarks[-1], Registry.load().get("H100")).floor
    assert floor is not None
    quoted = " ".join((TASKS.parents[1] / "docs" / "harness.md").read_text(encoding="utf-8").split())
    assert f"benchmark 5 of 5: {floor.refusal(4100)} ```" in quoted


def test_no_floor_of_a_shipped_task_comes_near_its_speed_of_light() -> None:
    """On every GPU type it is offered on, a right kernel has a sixth to spare below what the data sheets allow."""
    registry, seen = Registry.load(), 0
    for path in sorted(TASKS.glob("*/task.yml")):
        folder = load_folder(path.parent)
        for name in folder.gpus:
            for case in folder.task.cases_for(name).benchmarks or ():
                light = speed_of_light(folder.task, case, registry.get(name))
                assert (light.sol_ns is None) == (name == "CPU"), (path, name)
                if light.floor is not None and light.sol_ns is not None:
                    seen += 1
                    assert light.floor.ns * min(MATH_SLACK, MEMORY_SLACK) <= light.sol_ns * 1.0001, (path, name, case)
    assert seen > 100
