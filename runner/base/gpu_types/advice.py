"""What a GPU type that is valid may still lack, or have got wrong. Pure; called by `kernel-runner gpu validate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from runner.base.gpu_types.model import Dtype, Figures, GpuType, Vendor

#: A wider data type and a narrower one, whose rate is once to twice that of the wider.
_STEPS = (
    (Dtype.TF32, Dtype.BF16),
    # Not of TF32: GeForce accumulates in FP16 at twice the rate of FP32.
    (Dtype.BF16, Dtype.FP16),
    (Dtype.FP16, Dtype.FP8),
    (Dtype.FP16, Dtype.INT8),
    (Dtype.FP8, Dtype.FP6),
    (Dtype.FP8, Dtype.FP4),
    (Dtype.INT8, Dtype.INT4),
)
#: Twice, and what data sheets round. A rate with sparsity among dense ones is four times the wider one.
_MOST = 2.1


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One remark."""

    fact: str
    #: What to do.
    remedy: str


def advise(entry: GpuType) -> Iterator[Advice]:
    """Remarks on a type, the gravest first."""
    if entry.vendor is Vendor.NONE:
        yield from _implausible("device", entry.device)
        return
    if not entry.device_names and not entry.pci_ids:
        yield Advice(
            fact="device_names: found none, so that no device is recognised as it",
            remedy="enter what the driver calls the device (nvidia-smi --query-gpu=name, amd-smi static --asic)",
        )
    yield from _missing(entry.device)
    yield from _implausible("device", entry.device)
    for index, product in enumerate(entry.products):
        yield from _implausible(f"products[{index}].device", product.device)


def _missing(figures: Figures) -> Iterator[Advice]:
    if figures.memory_gib is None:
        yield Advice(
            fact="device.memory_gib: found nothing, so that cases are not held against the device's memory",
            remedy="enter the device's memory",
        )
    if figures.bandwidth_gb_s is None or not figures.peak_tflops:
        absent = "bandwidth_gb_s" if figures.bandwidth_gb_s is None else "peak_tflops"
        yield Advice(
            fact=f"device.{absent}: found nothing, so that results have no speed of light",
            remedy="enter the dense figures of the vendor's data sheet",
        )
    elif figures.cache_bytes is None:
        yield Advice(
            fact="device.l2_mib: found nothing, so that no time is too short for the memory's bandwidth",
            remedy="enter the size of the L2 cache, and as l3_mib that of a cache beyond it",
        )


def _implausible(where: str, figures: Figures) -> Iterator[Advice]:
    rates = figures.peak_tflops
    for wide, narrow in _STEPS:
        if wide in rates and narrow in rates and not 1 <= rates[narrow] / rates[wide] <= _MOST:
            yield Advice(
                fact=f"{where}.peak_tflops: found {narrow} {rates[narrow]:g} and {wide} {rates[wide]:g}, "
                f"expected {narrow} to be once to twice {wide}",
                remedy="enter rates without sparsity; data sheets often state the double",
            )
    stated = [field.name for field in fields(figures) if getattr(figures, field.name) not in (None, {})]
    unsourced = [name for name in stated if name not in ("sources", *figures.sources)]
    if unsourced:
        names = ", ".join(unsourced)
        yield Advice(
            fact=f"{where}.sources: found nothing for {names}, whose origin is unknown",
            remedy="enter the documents",
        )
