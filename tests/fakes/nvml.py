"""NVML as nvidia-ml-py shows it: functions, constants and errors by their names, over answers of recorded devices."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

#: As in nvidia-ml-py; a test holds them against the real one.
CONSTANTS = {
    "NVML_CLOCK_SM": 1,
    "NVML_CLOCK_MEM": 2,
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
    "NVML_VOLATILE_ECC": 0,
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230,
    "nvmlEventTypeXidCriticalError": 8,
}
ERRORS = {
    "Uninitialized": 1,
    "InvalidArgument": 2,
    "NotSupported": 3,
    "NoPermission": 4,
    "NotFound": 6,
    "DriverNotLoaded": 9,
    "Timeout": 10,
    "LibraryNotFound": 12,
    "FunctionNotFound": 13,
    "GpuIsLost": 15,
    "ResetRequired": 16,
    "LibRmVersionMismatch": 18,
    "GpuNotFound": 28,
    "Unknown": 999,
}
#: Answers that the library gives as lists of structures, and those that it gives for one of several arguments.
_BY_ARGUMENT = {"nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"}

Answers = Mapping[str, Any]


class Nvml(types.ModuleType):
    """The module `pynvml` over a machine: a function that gives the answers of every device, asked at every call.

    An answer is what the library returns, structures as mappings; `{"error": "GpuIsLost"}` is what it raises instead.
    A device without an answer does not support the question.
    """

    def __init__(self, machine: Callable[[], Sequence[Answers]], *, fails: str | None = None) -> None:
        super().__init__("pynvml")
        self.machine = machine
        #: How opening the library fails.
        self.fails = fails
        self.open = 0
        self.NVMLError = type("NVMLError", (Exception,), {})
        self.errors = {
            name: type(f"NVMLError_{name}", (self.NVMLError,), {"value": value}) for name, value in ERRORS.items()
        }
        vars(self).update({f"NVMLError_{name}": kind for name, kind in self.errors.items()}, **CONSTANTS)
        #: What was announced to whom: per registered set the device and how many of its errors were told.
        self.sets: list[list[Any]] = []

    def fail(self, name: str) -> NoReturn:
        """Raise an error by its name."""
        raise self.errors[name](name)

    def nvmlInit(self) -> None:  # noqa: N802, D102 - the library's name
        if self.fails is not None:
            self.fail(self.fails)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802, D102 - the library's name
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802, D102 - the library's name
        return len(self.machine())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[int, int | None]:  # noqa: N802, D102 - the library's name
        self.answer((index, None), "nvmlDeviceGetHandleByIndex", default=True)
        return index, None

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> tuple[int, int | None]:  # noqa: N802, D102 - the library's name
        known: dict[str, tuple[int, int | None]] = {}
        for index, device in enumerate(self.machine()):
            known[device["nvmlDeviceGetUUID"]] = index, None
            for number, instance in enumerate(device.get("instances", ())):
                known[instance["nvmlDeviceGetUUID"]] = index, number
        if uuid not in known:
            self.fail("NotFound")
        self.answer((known[uuid][0], None), "nvmlDeviceGetHandleByUUID", default=True)
        return known[uuid]

    def nvmlDeviceGetMaxMigDeviceCount(self, _handle: object) -> int:  # noqa: N802, D102 - the library's name
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: tuple[int, None], number: int) -> tuple[int, int]:  # noqa: N802, D102 - the library's name
        if number >= len(self.machine()[handle[0]].get("instances", ())):
            self.fail("NotFound")
        return handle[0], number

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: tuple[int, int]) -> tuple[int, None]:  # noqa: N802, D102 - the library's name
        return handle[0], None

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802, D102 - the library's name
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802, D102 - the library's name
        return 13000

    def nvmlDeviceGetFieldValues(self, handle: Any, fields: Sequence[int]) -> list[Any]:  # noqa: N802, D102, ANN401 - the library's name
        values = self.answer(handle, "nvmlDeviceGetFieldValues", default={})
        return [
            types.SimpleNamespace(
                fieldId=field,
                nvmlReturn=0 if str(field) in values else ERRORS["NotSupported"],
                value=types.SimpleNamespace(uiVal=values.get(str(field), 0)),
            )
            for field in fields
        ]

    def nvmlEventSetCreate(self) -> list[Any]:  # noqa: N802, D102 - the library's name
        self.sets.append([None, 0])
        return self.sets[-1]

    def nvmlDeviceRegisterEvents(self, handle: Any, _kinds: int, events: list[Any]) -> None:  # noqa: N802, D102, ANN401 - the library's name
        events[:] = [handle, len(self.machine()[handle[0]].get("xids", ()))]

    def nvmlEventSetWait_v2(self, events: list[Any], _timeout_ms: int) -> Any:  # noqa: N802, D102, ANN401 - the library's name
        handle, told = events
        xids = self.machine()[handle[0]].get("xids", ())
        if told >= len(xids):
            self.fail("Timeout")
        events[1] += 1
        return types.SimpleNamespace(eventData=xids[told])

    def nvmlEventSetFree(self, events: list[Any]) -> None:  # noqa: N802, D102 - the library's name
        self.sets.remove(events)

    def answer(self, handle: tuple[int, int | None], question: str, *, default: Any = None) -> Any:  # noqa: ANN401 - of any kind
        """The recorded answer of a device or of one of its instances."""
        if self.open < 1:
            self.fail("Uninitialized")
        index, instance = handle
        device = self.machine()[index]
        source = device if instance is None else device["instances"][instance]
        # A device that is gone says so whatever it is asked.
        found = device.get("*", source.get(question, default))
        if found is None:
            self.fail("NotSupported")
        if isinstance(found, Mapping) and "error" in found:
            self.fail(found["error"])
        return found

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        """Every other question to a device."""
        if not name.startswith("nvmlDevice"):
            raise AttributeError(name)

        def ask(handle: tuple[int, int | None], *arguments: object) -> Any:  # noqa: ANN401 - of any kind
            found = self.answer(handle, name)
            return _structure(found[str(arguments[0])] if name in _BY_ARGUMENT else found)

        return ask


def _structure(value: Any) -> Any:  # noqa: ANN401 - of any kind
    if isinstance(value, Mapping):
        return types.SimpleNamespace(**value)
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [types.SimpleNamespace(**entry) for entry in value]
    return value
