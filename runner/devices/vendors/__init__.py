"""The vendors of accelerators, a module each: its library, its nodes, its names in CDI, its tools, its clocks.

A further vendor is a module here with a `SUPPORT`, as `tests/unit/devices/test_vendors.py` adds one, and a member of
`Vendor` with the clock reasons that its library reports (`CLOCK_REASONS` in `runner/base/gpu_types/model.py`). These
ask by vendor, too:

- `runner/evaluation/build_plan.py`: who has nvcc for `lang: cu`.
- `runner/evaluation/container_spec.py` and `sandbox/host/hostroot.py`: folders of the vendors' tools.
- `runner/evaluation/kinds/program.py` and `tasks/harness/shared/profilers.py`: whose profiler runs.
- `tasks/harness/shared/cuda_driver.py`: without `libcuda.so.1` calls go by message.
- `sandbox/policy`: `checks.py`, device nodes that vendors' tools add beside the device's own; `hardening.py`, NVIDIA's
  runtime.
- `tasks/harness/judge/main.py`: the node that says that a container has a device.
- `systemd/kernel-runner.service`: the nodes that the daemon may use.
- `runner/base/gpu_types/draft.py` and `registry.py`: what `gpu detect` writes, and which keys need a vendor.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from runner.base.device_facts import Details, Reading
from runner.base.gpu_types import Vendor
from runner.base.model import Device


class Library(Protocol):
    """A vendor's library while it is open. For one thread at a time.

    All calls about a device raise UnreachableError if it does not answer. A value that it does not report is None in a
    record.
    """

    def close(self) -> None:
        """Close the library."""

    def devices(self, problem: Callable[[str], None]) -> Iterator[Device]:
        """Every device, or its parts if it is divided. `problem` gets a sentence for each one left out."""

    def details(self, device: Device) -> Details:
        """The settings of a device."""

    def read(self, device: Device) -> Reading:
        """The state of a device now."""

    def sample(self, device: Device) -> Reading:
        """Only what can be read without disturbing a timed run: clocks, temperature, power and throttle reasons."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """A vendor."""

    #: Opens its library. None on a host without its driver, which is a normal host; any exception is a problem.
    open: Callable[[], Library | None]
    #: Kind of its devices in CDI specs, and the node that each device has for itself.
    cdi_kind: str
    own_node: re.Pattern[str]
    #: Whether the instances of a divided device have only the whole device's own node.
    instances_share_node: bool
    #: Whether an image's containers get devices that have no CDI name by UUID, through NVIDIA's runtime; else by node.
    by_uuid: bool = False
    #: How the names of nodes begin that computing needs beside the device's own, and how they are made.
    needed_nodes: tuple[str, ...]
    nodes_remedy: str
    #: Whether a clock that is demanded is an upper limit, and not the clock itself.
    clock_is_limit: bool


def supported(folders: Sequence[str]) -> Mapping[str, Support]:
    """Name of a vendor -> its support, from the modules in these folders, in the order of the enumeration."""
    order = {vendor.value: number for number, vendor in enumerate(Vendor)}
    names = sorted(
        (entry.name for entry in pkgutil.iter_modules(folders)), key=lambda name: order.get(name, len(order))
    )
    return {name: import_module(f"{__name__}.{name}").SUPPORT for name in names}


#: Of all vendors.
SUPPORTED = supported(__path__)
