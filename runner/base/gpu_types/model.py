"""Record of one GPU type, and what the keys of its TOML file may hold. Pure.

The annotations say what a value may be; `runner.base.gpu_types.registry` checks files by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error
    return pattern


def _of_figures(sources: Mapping[str, str]) -> Mapping[str, str]:
    figures = [entry.name for entry in fields(Figures) if entry.name != "sources"]
    for name in sources:
        if name not in figures:
            raise ValueError(f"names of figures: {', '.join(figures)}")
    return sources


#: What a type may be called: it stands in SQL text arrays, URLs and container labels.
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
_Pattern = Annotated[str, AfterValidator(_compiled)]
_PciId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]
_Architecture = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{1,2}[af]?$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Line = Annotated[str, StringConstraints(min_length=1, max_length=500)]
_Text = Annotated[str, StringConstraints(max_length=500)]
_Megahertz = Annotated[int, Field(ge=50, le=50_000)]
_Positive = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]


class Vendor(StrEnum):
    """Whose runtime a type needs."""

    #: No accelerator: the CPU type.
    NONE = "none"
    NVIDIA = "nvidia"
    AMD = "amd"


#: Reasons for low clocks that a vendor's library can report. NVIDIA's stand in the order of their bits, from 0x2 on
#: (NVML API reference, nvmlClocksEventReasons; idle, 0x1, is none); AMD's are amdsmi_get_violation_status's `active_*`.
CLOCK_REASONS: Final[Mapping[Vendor, tuple[str, ...]]] = {
    Vendor.NONE: (),
    Vendor.NVIDIA: (
        "applications_clocks_setting",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "display_clock_setting",
    ),
    Vendor.AMD: ("prochot_thrm", "ppt_pwr", "socket_thrm", "vr_thrm", "hbm_thrm", "gfx_clk_below_host_limit"),
}


class Dtype(StrEnum):
    """What a device's units multiply; fp4, fp6 and fp8 stand for every encoding of that width."""

    FP4 = "fp4"
    FP6 = "fp6"
    FP8 = "fp8"
    INT4 = "int4"
    INT8 = "int8"
    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"
    FP32 = "fp32"
    FP64 = "fp64"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one device can hold and do at most, as its vendor states it; None where that is not known."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    #: The memory of its own that every device of the type has.
    memory_gib: _Positive | None = None
    l2_mib: _Positive | None = None
    #: A cache beyond L2: AMD's Infinity Cache, a processor's last level.
    l3_mib: _Positive | None = None
    #: Of its memory, both directions together; 1e9 bytes per second.
    bandwidth_gb_s: _Positive | None = None
    #: 1e12 operations per second on dense operands, a multiplication and an addition being two.
    peak_tflops: Mapping[Dtype, _Positive] = field(default_factory=dict)
    #: Name of a figure -> the document it was taken from.
    sources: Annotated[Mapping[str, _Line], AfterValidator(_of_figures)] = field(default_factory=dict)

    @property
    def cache_bytes(self) -> float | None:
        """How much of its memory's contents its caches may hold; None where no cache is known."""
        sizes_mib = [size for size in (self.l2_mib, self.l3_mib) if size is not None]
        return sum(sizes_mib) * (1 << 20) if sizes_mib else None

    @property
    def fastest_tflops(self) -> float | None:
        """The rate of its fastest units, whatever they multiply."""
        return max(self.peak_tflops.values(), default=None)


@dataclass(frozen=True, kw_only=True)
class ClockPolicy:
    """At which clocks devices of a type measure, and when a time counts."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    #: What the streaming multiprocessors are locked at; AMD: the highest that the device may take. None: not locked.
    sm_mhz: _Megahertz | None = None
    #: What the memory is locked at; NVIDIA alone. None: not locked.
    memory_mhz: _Megahertz | None = None
    #: Reasons for low clocks that set timed calls aside, and that keep an unused device out. As they are: that
    #: something is wrong outside, heat or power supply, with any vendor's device.
    set_aside: tuple[str, ...] = (
        "hbm_thrm",
        "hw_power_brake_slowdown",
        "hw_slowdown",
        "hw_thermal_slowdown",
        "prochot_thrm",
        "socket_thrm",
        "sw_thermal_slowdown",
        "vr_thrm",
    )


@dataclass(frozen=True, kw_only=True)
class Product:
    """Devices of a type that have figures of their own: a board with other memory or other clocks."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    #: As in `GpuType.device_names`.
    device_names: Annotated[tuple[_Pattern, ...], Field(min_length=1)]
    device: Figures


@dataclass(frozen=True, kw_only=True)
class HardwareRun:
    """What ran on a real device of a type: when, on which, with which driver."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    date: date
    #: The driver's name of the device.
    device: _Line
    #: Version of the device's driver.
    driver: _Line
    #: Toolkit and libraries with their versions, as text; empty: not recorded.
    software: _Text = ""
    #: What ran, one thing each.
    what: Annotated[tuple[_Line, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class GpuType:
    """A registry entry."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: _Name
    vendor: Vendor
    description: _Text = ""
    #: Other names frontends use for it.
    aliases: tuple[_Name, ...] = ()
    #: Devices per slot (8 for MI300x8).
    count: Annotated[int, Field(ge=1, le=64)] = 1
    #: Regular expressions, any of which the whole device name must match (NVML name, amdsmi market name).
    device_names: tuple[_Pattern, ...] = ()
    #: `vendor:device` on the PCI bus: how a device is recognised whose name no type knows.
    pci_ids: tuple[_PciId, ...] = ()
    #: Regular expression of the partitions (MIG profile, AMD compute partition) that are its devices; None: whole ones.
    partition: _Pattern | None = None
    #: Whether slots of this type are made for devices found at start-up; False: only where `slots` names the type.
    detect: bool = True
    #: nvcc's -gencode architecture, e.g. "90a"; None compiles for the device that is there (`-arch=native`).
    nvcc_arch: _Architecture | None = None
    #: "host" or an OCI image reference.
    image: Annotated[str, Field(min_length=1)] = "host"
    #: Interpreter inside an OCI image, with torch; where the Dockerfiles of sandbox/image put it. Unused with "host".
    image_python: Annotated[str, Field(pattern=r"^/\S+$")] = "/opt/environment/bin/python"
    runtime: Annotated[str, Field(min_length=1)] = "runc"
    #: Added to every process in the container.
    environment: Mapping[_Variable, str] = field(default_factory=dict)
    memory_gib: Annotated[float, Field(ge=0.25, le=16384)] = 8.0
    pids: Annotated[int, Field(ge=16, le=4_194_304)] = 512
    shm_mib: Annotated[int, Field(ge=1)] = 64
    #: How often devices are sampled while a run goes on; None: not at all.
    sample_every_s: Annotated[float, Field(ge=0.05, le=60)] | None = None
    #: At which clocks its devices measure.
    clocks: ClockPolicy = field(default_factory=ClockPolicy)
    #: Whether times on its devices that the judge's clock contradicts are rejected; else its measure counts.
    rejects_forged_times: bool = False
    #: Size of each writable tmpfs.
    scratch_mib: Annotated[int, Field(ge=16)] = 1024
    #: Without an accelerator: programs find a CUDA device that is emulated on the CPU, and nothing is ranked.
    emulate_cuda: bool = False
    #: What one of its devices can do.
    device: Figures = field(default_factory=Figures)
    #: Its devices that differ; the first whose names match counts.
    products: tuple[Product, ...] = ()
    #: What ran on its devices; empty: nothing ever did.
    hardware_runs: tuple[HardwareRun, ...] = ()

    def figures_of(self, device_name: str | None) -> Figures:
        """The figures of the device of that name; those of the type where there is none, or no product is named so."""
        for product in self.products:
            if any(re.fullmatch(pattern, device_name or "") for pattern in product.device_names):
                return product.device
        return self.device

    @property
    def last_hardware_run(self) -> date | None:
        """The day of the latest run on hardware; None: never."""
        return max((run.date for run in self.hardware_runs), default=None)
