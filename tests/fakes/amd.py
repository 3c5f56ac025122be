"""AMD SMI as amdsmi shows it: functions by their names, over answers of recorded devices."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Answers = Mapping[str, Any]


class AmdSmi(types.ModuleType):
    """The module `amdsmi` over a machine. Answers are as in `tests.fakes.nvml`; an error is the library's exception."""

    AmdSmiClkType = enum.Enum("AmdSmiClkType", ("SYS", "GFX", "DF", "DCEF", "SOC", "MEM"))
    AmdSmiTemperatureType = enum.Enum("AmdSmiTemperatureType", ("EDGE", "HOTSPOT", "JUNCTION", "VRAM"))
    AmdSmiTemperatureMetric = enum.Enum("AmdSmiTemperatureMetric", ("CURRENT", "MAX"))
    AmdSmiDevPerfLevel = enum.Enum("AmdSmiDevPerfLevel", ("AUTO", "LOW", "HIGH", "DETERMINISM"))

    def __init__(self, machine: Callable[[], Sequence[Answers]]) -> None:
        super().__init__("amdsmi")
        self.machine = machine
        self.open = 0
        self.AmdSmiException = type("AmdSmiException", (Exception,), {})
        self.AmdSmiLibraryException = type("AmdSmiLibraryException", (self.AmdSmiException,), {})

    def amdsmi_init(self) -> None:
        """Open it."""
        self.open += 1

    def amdsmi_shut_down(self) -> None:
        """Close it."""
        self.open -= 1

    def amdsmi_get_processor_handles(self) -> list[int]:
        """One per device or partition."""
        return list(range(len(self.machine())))

    def amdsmi_get_rocm_version(self) -> tuple[bool, str]:
        """As amdsmi 7.0.2 has it: whether it was found, and the version or why not."""
        return True, "7.0.2"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        """Every other question to a device."""
        if not name.startswith("amdsmi_get"):
            raise AttributeError(name)

        def ask(handle: int, *arguments: enum.Enum) -> Any:  # noqa: ANN401 - of any kind
            device = self.machine()[handle]
            found = device.get("*", device.get(name))
            if found is not None and name == "amdsmi_get_clock_info":
                found = found[arguments[0].name]
            if self.open < 1 or found is None or (isinstance(found, Mapping) and "error" in found):
                raise self.AmdSmiLibraryException(found["error"] if found else "AMDSMI_STATUS_NOT_SUPPORTED")
            return found

        return ask
