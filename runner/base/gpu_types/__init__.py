"""The GPU type registry: what a type is called, how its devices are recognised, what its containers get. Pure.

One TOML file per type in this folder, overlaid by the operator's directory; a new type is a file, never code.
"""

from runner.base.gpu_types.advice import Advice, advise
from runner.base.gpu_types.draft import draft
from runner.base.gpu_types.model import (
    CLOCK_REASONS,
    ClockPolicy,
    Dtype,
    Figures,
    GpuType,
    HardwareRun,
    Product,
    Vendor,
)
from runner.base.gpu_types.registry import Registry

__all__ = [
    "CLOCK_REASONS",
    "Advice",
    "ClockPolicy",
    "Dtype",
    "Figures",
    "GpuType",
    "HardwareRun",
    "Product",
    "Registry",
    "Vendor",
    "advise",
    "draft",
]
