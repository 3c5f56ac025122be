"""`gpu test`: whether a slot of this host can measure, found out by the way that every submission goes.

Owns a task of its own (`selftest`): what the sandbox sees, a copy, products of matrices. The command is in
`runner.cli.gpu`; everything runs through `runner.evaluation`, so sandbox, attestation, judge and clock are those of a
submission.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from runner.base.config import Config
from runner.base.errors import InfrastructureError
from runner.base.gpu_types import GpuType, Registry, Vendor
from runner.base.gpu_types.model import Dtype, Figures
from runner.base.model import JobResult, Mode, Slot, Verdict
from runner.base.units import duration
from runner.cli.evaluate import find_slot, make_job
from runner.cli.finding import Finding, Mark
from runner.devices import detect_slots
from runner.evaluation.evaluate import Evaluator
from runner.evaluation.speed_of_light import MATH_SLACK, MEMORY_SLACK
from runner.task_format.model import HARNESS, SUBMISSION, Case, Lang, PyConfig, Ranking, Task, TaskFolder

_FILES: Final = Path(__file__).parent / "selftest"
#: A device below this part of its type's figures is held back. Memory reaches 0.8 to 0.93 of its data sheet in a copy.
#: Matrix units reach 0.5 to 0.8 of theirs in a library's product of this size.
_SLOW_MEMORY: Final = 0.6
_SLOW_MATH: Final = 0.35
#: Half the distance of the tenth and the ninetieth percentile, as a part of the median.
_NOISY: Final = 0.05
_TIMEOUT_S: Final = 300
#: Data type of the products -> torch's name of it. TF32 is left out: torch uses it only where it is told to.
_PRODUCTS: Final = {Dtype.FP16: "float16", Dtype.BF16: "bfloat16", Dtype.FP32: "float32"}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One timed operation."""

    name: str
    median_ns: float
    #: Half the distance of the tenth and the ninetieth percentile, as a part of the median.
    noise: float
    #: GB/s (1e9 bytes per second) of a copy, TFLOP/s of a product.
    rate: float
    unit: str
    #: What the GPU type states; None: nothing.
    peak: float | None

    @property
    def fraction(self) -> float | None:
        """The part of the stated rate that was reached."""
        return None if self.peak is None else self.rate / self.peak


@dataclass(frozen=True, kw_only=True)
class SlotTest:
    """The outcome of the test of one slot."""

    slot: Slot
    findings: tuple[Finding, ...]
    measured: tuple[Measured, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As `gpu test --json` prints it."""
        return {
            "gpu_type": self.slot.gpu_type,
            "slot": self.slot.name,
            "devices": [device.uuid for device in self.slot.devices],
            "checks": [finding.to_json() for finding in self.findings],
            "measured": [{**asdict(one), "fraction": one.fraction} for one in self.measured],
        }


def slots_to_test(registry: Registry, config: Config, gpu: str | None, *, every: bool) -> Sequence[Slot]:
    """One slot for each GPU type of this host, or all of them; of one type alone if it is named.

    Raises:
        NotFoundError, ConfigError: no such type, or no slot of it here.
    """
    here = list(detect_slots(registry, config))
    if gpu is not None or not here:
        wanted = registry.get(gpu or "CPU")
        one = find_slot(registry, config, wanted)
        here = [slot for slot in here if slot.gpu_type == wanted.name] or [one]
    return here if every else list({slot.gpu_type: slot for slot in reversed(here)}.values())[::-1]


def try_slot(evaluator: Evaluator, gpu: GpuType, slot: Slot, *, cancel: threading.Event) -> SlotTest:
    """Run the self-test on a slot.

    Raises:
        CancelledByRequest: `cancel` was set.
    """
    findings: list[Finding] = []
    measured: list[Measured] = []
    code = (_FILES / "submission.py.in").read_bytes()
    folder = make_task(gpu, slot)
    try:
        for mode in (Mode.TEST, Mode.BENCHMARK):
            job = make_job(folder, "self_test.py", code, gpu.name, mode)
            result = evaluator.run(job, slot, cancel=cancel)
            if result.verdict is not Verdict.ACCEPTED:
                remedy = "docs/security.md#container-settings has each setting; the log has the details"
                failed = "what the sandbox shows" if mode is Mode.TEST else "the timed operations"
                findings.append(
                    Finding(name=failed, mark=Mark.FAILED, found=f"{result.verdict}: {result.error}", remedy=remedy)
                )
                break
            if mode is Mode.TEST:
                findings.append(_sees(result, slot))
            else:
                measured += _measured(result, folder.task.benchmarks, gpu.figures_of(_device_name(slot)))
                findings += [_compared(one, gpu) for one in measured]
                findings += [_noise(measured), *_state(result)]
    except InfrastructureError as error:
        # Engine, container or device: a fault of this host.
        remedy = "`kernel-runner check` says what is missing on this host"
        findings.append(Finding(name="run", mark=Mark.FAILED, found=str(error), remedy=remedy, infrastructure=True))
    return SlotTest(slot=slot, findings=tuple(findings), measured=tuple(measured))


def make_task(gpu: GpuType, slot: Slot) -> TaskFolder:
    """The task for a slot: what it should see, and operations that its devices take about a millisecond for."""
    small = gpu.vendor is Vendor.NONE
    dtypes = [Dtype.FP32] if small else [dtype for dtype in _PRODUCTS if dtype in gpu.device.peak_tflops]
    products = [
        {"kind": "matmul", "size": 256 if small else 8192, "dtype": _PRODUCTS[dtype], "seed": 3}
        for dtype in dtypes or [Dtype.FP32]
    ]
    copy: Case = {"kind": "copy", "size": (1 if small else 128) << 20, "seed": 2}
    task = Task(
        files={
            "submission.py": SUBMISSION,
            "reference.py": (_FILES / "reference.py.in").read_text(encoding="utf-8"),
            "eval.py": HARNESS,
        },
        lang=Lang.PY,
        config=PyConfig(main="eval.py"),
        tests=(_expected(gpu, slot), {**copy, "size": 1000}, {**products[0], "size": 64}),
        benchmarks=(copy, *products),
        test_timeout_s=_TIMEOUT_S,
        benchmark_timeout_s=_TIMEOUT_S,
        ranking_by=Ranking.GEOM,
    )
    return TaskFolder(name="self-test", task=task, description="", templates={}, gpus=())


def _expected(gpu: GpuType, slot: Slot) -> Case:
    nodes = [node for device in slot.devices for node in device.nodes]
    numbers = [int(found[1]) for node in nodes if (found := re.search(r"/(?:nvidia|renderD)(\d+)$", node))]
    # Torch tells the UUIDs of whole NVIDIA devices as NVML does, without the word in front.
    whole = [device for device in slot.devices if device.vendor == Vendor.NVIDIA and device.partition is None]
    named = "_".join(device.uuid for device in whole) if whole and len(whole) == len(slot.devices) else "none"
    return {
        "kind": "sees",
        "devices": len(slot.devices) or int(gpu.emulate_cuda),
        "numbers": list(dict.fromkeys(numbers)),
        "cpus": list(slot.cpus),
        "uuids": named,
        "seed": 1,
    }


def _device_name(slot: Slot) -> str | None:
    return slot.devices[0].name if slot.devices else None


def _sees(result: JobResult, slot: Slot) -> Finding:
    attested = result.runs[0].system_info["runner"]["sandbox"]
    compared = sum(attested["comparisons"].values())
    devices = ", ".join(device.uuid for device in slot.devices) or "no device"
    unseen = attested["unseen"]
    found = f"{devices} and {len(slot.cpus)} cores, as the slot has; {compared} settings attested"
    if not unseen:
        return Finding(name="sandbox sees", mark=Mark.OK, found=found)
    remedy = f"not looked at: {', '.join(map(str, unseen))}; see docs/security.md#container-settings"
    return Finding(name="sandbox sees", mark=Mark.WARNING, found=found, remedy=remedy)


def _measured(result: JobResult, cases: Sequence[Case], figures: Figures) -> Iterator[Measured]:
    times = result.runs[0].result
    for number, case in enumerate(cases):
        median, low, high = (float(times[f"benchmark.{number}.{key}"]) for key in ("median", "p10", "p90"))
        size = int(str(case["size"]))
        if case["kind"] == "copy":
            # Four bytes each, read and written.
            name, rate, unit, peak = "copy", 8 * size / median, "GB/s", figures.bandwidth_gb_s
        else:
            dtype = next(key for key, value in _PRODUCTS.items() if value == case["dtype"])
            name, rate, unit = f"matmul {dtype}", 2 * size**3 / median / 1e3, "TFLOP/s"
            peak = figures.peak_tflops.get(dtype)
        yield Measured(name=name, median_ns=median, noise=(high - low) / 2 / median, rate=rate, unit=unit, peak=peak)


def _compared(one: Measured, gpu: GpuType) -> Finding:
    """A rate beside what the type states."""
    reached = f"{one.rate:.4g} {one.unit} ({duration(round(one.median_ns))})"
    if one.fraction is None:
        return Finding(name=one.name, mark=Mark.OK, found=f"{reached}; {gpu.name} states no figure to compare with")
    found = f"{reached}, {one.fraction:.0%} of {gpu.name}'s {one.peak:g}"
    memory = one.unit == "GB/s"
    if one.fraction > (MEMORY_SLACK if memory else MATH_SLACK):
        remedy = "the type's figure is too low for this device, and would refuse right results: correct it"
        return Finding(name=one.name, mark=Mark.FAILED, found=found, remedy=remedy)
    if one.fraction < (_SLOW_MEMORY if memory else _SLOW_MATH):
        remedy = "see clocks, power limit, ECC and what else runs on the device (nvidia-smi -q, amd-smi metric)"
        return Finding(name=one.name, mark=Mark.WARNING, found=found, remedy=remedy)
    return Finding(name=one.name, mark=Mark.OK, found=found)


def _noise(measured: Sequence[Measured]) -> Finding:
    worst = max(measured, key=lambda one: one.noise)
    found = f"times of one operation differ by ±{worst.noise:.1%} of their median at most ({worst.name})"
    if worst.noise <= _NOISY:
        return Finding(name="noise", mark=Mark.OK, found=found)
    remedy = "keep other work off this host and its clocks steady; scores differ by as much from run to run"
    return Finding(name="noise", mark=Mark.WARNING, found=found, remedy=remedy)


def _state(result: JobResult) -> Iterator[Finding]:
    """How the devices were after the timed operations."""
    for device in result.runs[0].system_info["runner"]["devices"]:
        after: Mapping[str, Any] | None = device.get("after")
        if after is None:
            continue
        clocks = [f"{after[key]:g} {unit}" for key, unit in _STATE.items() if after.get(key) is not None]
        held = ", ".join(after["throttle"])
        found = ", ".join(clocks) + (f", clocks held by {held}" if held else "")
        yield Finding(name=str(device["name"]), mark=Mark.OK, found=found or "the driver tells nothing of its state")


_STATE: Final = {"sm_clock_mhz": "MHz", "memory_clock_mhz": "MHz memory", "temperature_c": "°C", "power_w": "W"}
