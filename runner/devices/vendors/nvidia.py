"""NVIDIA devices through NVML (nvidia-ml-py). The library is imported at the first use, and may be missing or old."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from runner.base.device_facts import Details, Reading, UnreachableError
from runner.base.gpu_types import CLOCK_REASONS, Vendor
from runner.base.model import Device
from runner.devices import sysfs
from runner.devices.vendors import Support

#: Bits of nvmlDeviceGetCurrentClocksEventReasons.
_THROTTLE: Final = {0x2 << position: name for position, name in enumerate(CLOCK_REASONS[Vendor.NVIDIA])}
#: Values of NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (nvml.h, nvmlDeviceGpuRecoveryAction_t).
_RECOVERY: Final = {
    1: "reset the device",
    2: "reboot the host",
    3: "drain its peers",
    4: "drain and reset the device",
    5: "recover the IMEX domain",
    6: "reset its bus",
    7: "reboot the whole system",
}
#: Values of nvmlDeviceGetComputeMode (nvml.h, nvmlComputeMode_t).
_COMPUTE_MODES: Final = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
#: Errors of any call that mean that the device or its driver is gone.
_GONE: Final = (
    "NVMLError_Uninitialized",
    "NVMLError_DriverNotLoaded",
    "NVMLError_GpuIsLost",
    "NVMLError_GpuNotFound",
    "NVMLError_ResetRequired",
)
#: Nodes that CUDA opens beside the device itself. The last one exists only where a profiler was installed.
_NVIDIA_HELPERS: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class Nvml:
    """NVML while it is open. For one thread at a time. A value that a device does not report is None in a record."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401 - the bindings have no types
        self._nvml = library
        self._gone: tuple[type[Exception], ...] = tuple(
            kind for name in _GONE if isinstance(kind := getattr(library, name, None), type)
        )
        #: UUID -> the event set that gets the device's critical errors, if the driver supports that.
        self._events: dict[str, Any] = {}

    @classmethod
    def open(cls) -> Nvml | None:
        """Open the library; None on a host without an NVIDIA driver, which is a normal host.

        If there is a driver, exceptions of the bindings and the driver pass through.
        """
        try:
            library = import_module("pynvml")
        except ImportError as error:
            if (sysfs.DEV / "nvidiactl").exists():
                raise RuntimeError(
                    "there is an NVIDIA driver, but no nvidia-ml-py to ask it; install kernel-runner[nvidia]"
                ) from error
            return None
        try:
            library.nvmlInit()
        except library.NVMLError_LibraryNotFound:
            return None
        return cls(library)

    def close(self) -> None:
        """Close the library."""
        for events in self._events.values():
            with suppress(Exception):
                self._nvml.nvmlEventSetFree(events)
        self._events = {}
        self._nvml.nvmlShutdown()

    def devices(self, problem: Callable[[str], None]) -> Iterator[Device]:
        """Every device, or its MIG instances if it is divided. `problem` gets a sentence for each one left out."""
        for index in range(self._nvml.nvmlDeviceGetCount()):
            # Foreign code around a driver: a lost device must not hide the others, whatever it raises.
            try:
                devices = self._device(index, problem)
            except Exception as error:  # noqa: BLE001 - see above
                problem(f"nvidia device {index} cannot be used: {_message(error)}")
            else:
                yield from devices

    def details(self, device: Device) -> Details:
        """The settings of a device."""
        nvml, handle = self._nvml, self._handle(device)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        handle = self._whole(device, handle)
        capability = self._ask("nvmlDeviceGetCudaComputeCapability", handle)
        cuda = self._ask("nvmlSystemGetCudaDriverVersion_v2")
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        return Details(
            driver=self._ask("nvmlSystemGetDriverVersion"),
            toolkit=None if cuda is None else f"CUDA {cuda // 1000}.{cuda % 1000 // 10}",
            architecture=None if capability is None else ".".join(str(part) for part in capability),
            memory_bytes=None if memory is None else memory.total,
            ecc=_flag(self._ask("nvmlDeviceGetEccMode", handle), 0),
            mig=_flag(self._ask("nvmlDeviceGetMigMode", handle), 0),
            persistence=_flag(self._ask("nvmlDeviceGetPersistenceMode", handle)),
            max_sm_clock_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, _constant(nvml, "NVML_CLOCK_SM")),
            max_memory_clock_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, _constant(nvml, "NVML_CLOCK_MEM")),
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
        )

    def read(self, device: Device) -> Reading:
        """The state of a device now."""
        handle = self._handle(device)
        try:
            used = self._nvml.nvmlDeviceGetMemoryInfo(handle).used
        except self._nvml.NVMLError_NotSupported:
            # It has no memory of its own (GB10).
            used = None
        except Exception as error:
            raise UnreachableError(_message(error)) from error
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        # Clients of NVIDIA's multi-process service stand in a list of their own.
        served = self._ask("nvmlDeviceGetMPSComputeRunningProcesses", handle) or ()
        handle = self._whole(device, handle)
        mode = self._ask("nvmlDeviceGetComputeMode", handle)
        rows = self._ask("nvmlDeviceGetRemappedRows", handle)
        retired = self._ask("nvmlDeviceGetRetiredPagesPendingStatus", handle) if rows is None else rows[2]
        xids = self._xids(device, handle)
        return Reading(
            used_bytes=used,
            processes=None if processes is None else tuple(sorted({process.pid for process in (*processes, *served)})),
            uncorrected=self._ask(
                "nvmlDeviceGetTotalEccErrors",
                handle,
                _constant(self._nvml, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
                _constant(self._nvml, "NVML_VOLATILE_ECC"),
            ),
            remap_pending=_flag(retired),
            remap_failed=_flag(rows, 3),
            recovery=self._recovery(handle),
            compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, f"mode {mode}"),
            xids=xids,
            **self._state(handle),
        )

    def sample(self, device: Device) -> Reading:
        """Only clocks, temperature, power and throttle reasons: reading these does not disturb a timed run."""
        return Reading(**self._state(self._whole(device, self._handle(device))))

    def _state(self, handle: object) -> dict[str, Any]:
        nvml = self._nvml
        power_mw = self._ask("nvmlDeviceGetPowerUsage", handle)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:
            # The name of the same function before driver 535.
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return {
            "throttle": tuple(name for bit, name in _THROTTLE.items() if (reasons or 0) & bit),
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, _constant(nvml, "NVML_CLOCK_SM")),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, _constant(nvml, "NVML_CLOCK_MEM")),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", handle, _constant(nvml, "NVML_TEMPERATURE_GPU")),
            "power_w": None if power_mw is None else power_mw / 1000,
        }

    def _device(self, index: int, problem: Callable[[str], None]) -> list[Device]:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        pci = nvml.nvmlDeviceGetPciInfo(handle)
        address = sysfs.pci_address(pci.busId)
        nodes = _nodes(nvml.nvmlDeviceGetMinorNumber(handle))
        number = getattr(pci, "pciDeviceId", None)
        whole = Device(
            uuid=nvml.nvmlDeviceGetUUID(handle),
            name=nvml.nvmlDeviceGetName(handle),
            vendor=Vendor.NVIDIA.value,
            index=index,
            pci_address=address,
            # The low half is the vendor.
            pci_id=None if number is None else f"{number & 0xFFFF:04x}:{number >> 16:04x}",
            numa_node=sysfs.numa_node(address),
            nodes=nodes,
            groups=sysfs.groups(nodes),
        )
        if not _flag(self._ask("nvmlDeviceGetMigMode", handle), 0):
            return [whole]
        instances = list(self._instances(handle, whole))
        if not instances:
            problem(
                f"nvidia device {index} ({whole.uuid}) is in MIG mode and has no instances; make some "
                "(nvidia-smi mig -cgi), or end the mode (nvidia-smi -mig 0)"
            )
        return instances

    def _instances(self, handle: object, whole: Device) -> Iterator[Device]:
        nvml = self._nvml
        for number in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            instance = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            if instance is not None:
                _, _, profile = nvml.nvmlDeviceGetName(instance).partition(" MIG ")
                caps = _capabilities(
                    nvml.nvmlDeviceGetMinorNumber(handle),
                    self._ask("nvmlDeviceGetGpuInstanceId", instance),
                    self._ask("nvmlDeviceGetComputeInstanceId", instance),
                )
                yield replace(
                    whole,
                    uuid=nvml.nvmlDeviceGetUUID(instance),
                    partition=profile or "unknown",
                    nodes=(*whole.nodes, *caps),
                    groups=sysfs.groups((*whole.nodes, *caps)),
                )

    def _handle(self, device: Device) -> object:
        try:
            return self._nvml.nvmlDeviceGetHandleByUUID(device.uuid)
        except Exception as error:
            raise UnreachableError(_message(error)) from error

    def _whole(self, device: Device, handle: object) -> object:
        """The device that an instance is a part of: it alone has clocks, power, errors and events."""
        return handle if device.partition is None else self._ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)

    def _ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - the bindings have no types
        """One answer; None: it is not supported, this version lacks the function, or only this call fails."""
        if None in arguments:
            return None
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._gone as error:
            raise UnreachableError(_message(error)) from error
        except Exception:  # noqa: BLE001 - without an answer the reason does not matter
            return None

    def _recovery(self, handle: object) -> str | None:
        field = _constant(self._nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION")
        answers = self._ask("nvmlDeviceGetFieldValues", handle, None if field is None else [field])
        if not answers or answers[0].nvmlReturn != 0:
            return None
        action = int(answers[0].value.uiVal)
        return _RECOVERY.get(action, f"action {action}") if action else None

    def _xids(self, device: Device, handle: object) -> tuple[int, ...]:
        """The critical errors since the last call. The first call only subscribes to them."""
        kind = _constant(self._nvml, "nvmlEventTypeXidCriticalError")
        if kind is None:
            return ()
        if device.uuid not in self._events:
            events = self._ask("nvmlEventSetCreate")
            if events is None:
                return ()
            self._events[device.uuid] = events
            self._ask("nvmlDeviceRegisterEvents", handle, kind, events)
            return ()
        xids: list[int] = []
        # A device in trouble repeats its errors; the first ones are enough.
        while len(xids) < 16 and (event := self._ask("nvmlEventSetWait_v2", self._events[device.uuid], 0)) is not None:
            xids.append(int(event.eventData))
        return tuple(xids)


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _flag(answer: Any, position: int | None = None) -> bool | None:  # noqa: ANN401 - the bindings have no types
    if answer is None:
        return None
    return bool(answer if position is None else answer[position])


def _constant(library: Any, name: str) -> int | None:  # noqa: ANN401 - the bindings have no types
    """A constant of the bindings; None: they are too old for it, and `_ask` then asks nothing."""
    return getattr(library, name, None)


def _nodes(minor: int) -> tuple[str, ...]:
    """The nodes of an NVIDIA device for containers that no container toolkit prepares."""
    helpers = (sysfs.DEV / name for name in _NVIDIA_HELPERS)
    return tuple(str(path) for path in (sysfs.DEV / f"nvidia{minor}", *helpers) if path.exists())


def _capabilities(minor: int, instance: int | None, part: int | None) -> tuple[str, ...]:
    """The nodes that open an instance of a divided NVIDIA device, beside those of the whole one.

    Args:
        minor: of the whole device.
        instance: number of the GPU instance; None: not known.
        part: number of the compute instance in it; None: not known.
    """
    directory = sysfs.PROC / f"driver/nvidia/capabilities/gpu{minor}/mig/gi{instance}"
    nodes: list[str] = []
    for access in (directory / "access", directory / f"ci{part}" / "access"):
        try:
            lines = access.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        numbers = [line.partition(":")[2].strip() for line in lines if line.startswith("DeviceFileMinor:")]
        nodes += [str(sysfs.DEV / "nvidia-caps" / f"nvidia-cap{number}") for number in numbers]
    return tuple(nodes)


SUPPORT: Final = Support(
    open=Nvml.open,
    cdi_kind="nvidia.com/gpu",
    own_node=re.compile(r"/dev/nvidia\d+"),
    instances_share_node=True,
    by_uuid=True,
    needed_nodes=("nvidiactl", "nvidia-uvm"),
    nodes_remedy="as root: nvidia-modprobe -u -c=0 (the service does it at each start), then restart kernel-runner",
    clock_is_limit=False,
)
