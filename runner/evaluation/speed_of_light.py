"""The speed of light: the least time that a case's work takes on a GPU type, and which times are impossible. Pure.

Computed from the work that a task states per case (`flops`, `bytes` in runner.yml) and the figures of the GPU type. The
two times differ: a perfect kernel's time, which results are compared with, and a floor far below it. No correct kernel
can be faster than the floor, whatever its algorithm, so a lower claim is refused. docs/harness.md derives the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runner.base.gpu_types.model import Dtype, Figures, GpuType, Vendor
from runner.task_format.model import Case, Task
from runner.task_format.work import work
from tasks.harness.judge.request import Floor

#: How much faster than its data sheet arithmetic may be. 1.1 for clocks: an H100's rates are stated at 1.83 GHz, and
#: its clock reaches 1.98 GHz, 1.08 times as much. 64/49 for two levels of Strassen's algorithm, more than any GPU
#: kernel gains. Together 1.44.
MATH_SLACK = 1.5
#: How much faster than its data sheet memory may be. Its clock is fixed; data sheets of one board differ by 1.04.
MEMORY_SLACK = 1.2

MATH = "math"
MEMORY = "memory"

#: Data type -> those that hold each of its values exactly, itself included, so that their units can do its work.
_CARRIERS: Mapping[Dtype, tuple[Dtype, ...]] = {
    # Every e2m1 number is half an integer of at most 12.
    Dtype.FP4: tuple(dtype for dtype in Dtype if dtype is not Dtype.INT4),
    Dtype.FP6: (Dtype.FP6, Dtype.FP8, Dtype.FP16, Dtype.BF16, Dtype.TF32, Dtype.FP32, Dtype.FP64),
    Dtype.FP8: (Dtype.FP8, Dtype.FP16, Dtype.BF16, Dtype.TF32, Dtype.FP32, Dtype.FP64),
    Dtype.INT4: tuple(dtype for dtype in Dtype if dtype not in (Dtype.FP4, Dtype.FP6)),
    Dtype.INT8: (Dtype.INT8, Dtype.FP16, Dtype.BF16, Dtype.TF32, Dtype.FP32, Dtype.FP64),
    Dtype.FP16: (Dtype.FP16, Dtype.TF32, Dtype.FP32, Dtype.FP64),
    Dtype.BF16: (Dtype.BF16, Dtype.TF32, Dtype.FP32, Dtype.FP64),
    Dtype.TF32: (Dtype.TF32, Dtype.FP32, Dtype.FP64),
    Dtype.FP32: (Dtype.FP32, Dtype.FP64),
    Dtype.FP64: (Dtype.FP64,),
}


@dataclass(frozen=True, kw_only=True)
class SpeedOfLight:
    """The least times of one case; None where task or GPU type do not state enough."""

    #: Nanoseconds of a perfect kernel, and what binds it (math or memory).
    sol_ns: float | None
    limit: str | None
    #: The refused times.
    floor: Floor | None

    def fraction(self, mean_ns: float) -> float | None:
        """The part of the speed of light that a time reaches; more than 1 where caches or narrower units helped."""
        return None if self.sol_ns is None else self.sol_ns / mean_ns


def speed_of_light(task: Task, case: Case, gpu: GpuType, *, device_name: str | None = None) -> SpeedOfLight:
    """The least times of a benchmark case on a GPU type, of all its ranks together.

    `device_name`: the driver's name of the slot's devices, for types with several products.

    Raises:
        WorkError: an expression does not fit the case; a loaded task has no such expression.
    """
    figures = gpu.figures_of(device_name)
    flops = None if task.extra.flops is None else work(task.extra.flops, case)
    moved = None if task.extra.bytes is None else work(task.extra.bytes, case)
    # Ranks without devices share the processor's cores.
    ranks = int(str(case.get("world_size", 1))) if task.multi_gpu and gpu.vendor is not Vendor.NONE else 1
    sol_ns, limit = _perfect_kernel(task, figures, flops, moved, ranks)
    return SpeedOfLight(sol_ns=sol_ns, limit=limit, floor=_floor(task, case, gpu, figures, flops, moved))


def _perfect_kernel(
    task: Task, figures: Figures, flops: float | None, moved: float | None, ranks: int
) -> tuple[float | None, str | None]:
    """A perfect kernel's time and its limit; None if the rate of anything that the task states is not known."""
    times: dict[str, float] = {}
    if flops is not None:
        rate = _rate(task.extra.math, figures)
        if rate is None:
            return None, None
        times[MATH] = flops / (rate * 1e12 * ranks) * 1e9
    if moved is not None:
        if figures.bandwidth_gb_s is None:
            return None, None
        times[MEMORY] = moved / (figures.bandwidth_gb_s * ranks)
    if not times:
        return None, None
    limit = max(times, key=lambda name: times[name])
    return times[limit], limit


def _rate(dtype: Dtype | None, figures: Figures) -> float | None:
    """1e12 operations per second of the fastest units that can do a data type's work; of any if none is named."""
    if dtype is None:
        return figures.fastest_tflops
    return max((figures.peak_tflops[name] for name in _CARRIERS[dtype] if name in figures.peak_tflops), default=None)


def _floor(  # noqa: PLR0917 numbers of one formula
    task: Task, case: Case, gpu: GpuType, figures: Figures, flops: float | None, moved: float | None
) -> Floor | None:
    # A submission may use every device of its slot, however many ranks the task has.
    floors = []
    if flops is not None and figures.fastest_tflops is not None:
        per_s = figures.fastest_tflops * 1e12 * MATH_SLACK * gpu.count
        why = f"{flops:.4g} operations, and {gpu.name} does at most {per_s:.4g} of any kind per second"
        floors.append(Floor(ns=flops / per_s * 1e9, limit=MATH, why=why))
    if moved is not None and figures.bandwidth_gb_s is not None and figures.cache_bytes is not None:
        written = None if task.extra.written is None else work(task.extra.written, case)
        crossing = _crossing(moved, written, figures.cache_bytes * gpu.count)
        per_s = figures.bandwidth_gb_s * 1e9 * MEMORY_SLACK * gpu.count
        why = (
            f"{crossing:.4g} bytes must pass the memory of {gpu.name} whatever its caches hold, and it moves at most "
            f"{per_s:.4g} per second"
        )
        floors.append(Floor(ns=crossing / per_s * 1e9, limit=MEMORY, why=why))
    highest = max(floors, key=lambda floor: floor.ns, default=None)
    return None if highest is None or highest.ns <= 0 else highest


def _crossing(moved: float, written: float | None, cache_bytes: float) -> float:
    """How many of a case's bytes must cross between the devices' memory and their caches.

    What lies in a cache when the clock starts need not be read, what does when it stops need not have been written.
    """
    if written is None:
        return max(moved - 2 * cache_bytes, 0.0)
    return max(moved - written - cache_bytes, 0.0) + max(written - cache_bytes, 0.0)
