"""AMD devices through AMD SMI (amdsmi). The library is imported at the first use, and may be missing, old or broken."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from runner.base.device_facts import Details, Reading, UnreachableError
from runner.base.gpu_types import Vendor
from runner.base.model import Device
from runner.devices import sysfs
from runner.devices.vendors import Support

#: The partition mode of a device that is not divided: one partition has all dies.
_WHOLE: Final = "SPX"
#: Counters of the time in which clocks were held down, and what the violation status calls the reason.
_RESIDENCIES: Final = {
    "prochot_residency_acc": "prochot_thrm",
    "ppt_residency_acc": "ppt_pwr",
    "socket_thm_residency_acc": "socket_thrm",
    "vr_thm_residency_acc": "vr_thrm",
    "hbm_thm_residency_acc": "hbm_thrm",
    "xcp_stats.gfx_below_host_limit_acc": "gfx_clk_below_host_limit",
}
#: Power limits are in watts or microwatts, depending on the version. No device has so many watts.
_MOST_WATTS: Final = 100_000


class _Users:
    """Counts the users of the library: unlike NVML it does not count, and one close closes it for all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def enter(self, library: Any) -> None:  # noqa: ANN401 - the bindings have no types
        with self._lock:
            if self._count == 0:
                library.amdsmi_init()
            self._count += 1

    def leave(self, library: Any) -> None:  # noqa: ANN401 - the bindings have no types
        with self._lock:
            self._count -= 1
            if self._count == 0:
                library.amdsmi_shut_down()


_USERS: Final = _Users()


class AmdSmi:
    """AMD SMI while it is open. For one thread at a time. A value that a device does not report is None in a record."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401 - the bindings have no types
        self._smi = library
        #: UUID -> the last counts of the time in which each reason held the clocks down.
        self._residencies: dict[str, dict[str, int]] = {}

    @classmethod
    def open(cls) -> AmdSmi | None:
        """Open the library; None on a host without AMD's compute driver, which is a normal host.

        If there is a driver, exceptions of the bindings and the driver pass through.
        """
        # Without /dev/kfd no container can compute. The bindings' import then fails, with an exception that depends on
        # their version: KeyError where ROCM_HOME is unset, OSError where the library is missing.
        if not (sysfs.DEV / "kfd").exists():
            return None
        library = import_module("amdsmi")
        _USERS.enter(library)
        return cls(library)

    def close(self) -> None:
        """Close the library."""
        _USERS.leave(self._smi)

    def devices(self, problem: Callable[[str], None]) -> Iterator[Device]:
        """Every device, or its partitions if it is divided. `problem` gets a sentence for each one left out."""
        handles = self._smi.amdsmi_get_processor_handles()
        # The first partition of a device alone knows the mode (ROCm/rocm-systems, pull request 8491).
        modes = {self._place(handle): mode for handle in reversed(handles) if (mode := self._mode(handle)) is not None}
        for index, handle in enumerate(handles):
            # Foreign code around a driver: a lost device must not hide the others, whatever it raises.
            try:
                yield self._device(handle, index, modes.get(self._place(handle)))
            except Exception as error:  # noqa: BLE001 - see above
                problem(f"amd device {index} cannot be used: {_message(error)}")

    def details(self, device: Device) -> Details:
        """The settings of a device."""
        handle = self._handle(device)
        asic = self._answers("amdsmi_get_gpu_asic_info", handle)
        driver = self._answers("amdsmi_get_gpu_driver_info", handle)
        rocm = _rocm_version(self._ask("amdsmi_get_rocm_version"))
        usage = self._answers("amdsmi_get_gpu_vram_usage", handle)
        target = asic.get("target_graphics_version")
        return Details(
            driver=_text(driver.get("driver_version")),
            toolkit=None if rocm is None else f"ROCm {rocm}",
            architecture=None if not _text(target) else "gfx" + str(target).removeprefix("gfx"),
            memory_bytes=_mib(usage.get("vram_total"), device),
            max_sm_clock_mhz=_number(self._clock(handle, "GFX").get("max_clk")),
            max_memory_clock_mhz=_number(self._clock(handle, "MEM").get("max_clk")),
            power_limit_w=_watts(self._answers("amdsmi_get_power_cap_info", handle).get("power_cap")),
        )

    def read(self, device: Device) -> Reading:
        """The state of a device now."""
        handle = self._handle(device)
        try:
            usage = self._smi.amdsmi_get_gpu_vram_usage(handle)
        except Exception as error:
            raise UnreachableError(_message(error)) from error
        processes = self._ask("amdsmi_get_gpu_process_list", handle)
        pages = self._ask("amdsmi_get_gpu_bad_page_info", handle)
        ecc = self._answers("amdsmi_get_gpu_total_ecc_count", handle)
        return Reading(
            used_bytes=_mib(usage["vram_used"], device),
            processes=_holding(processes) if isinstance(processes, list) else None,
            uncorrected=_number(ecc.get("uncorrectable_count")),
            # The library returns a text in place of an empty list.
            remap_pending=any(_is(page, "PENDING") for page in pages) if isinstance(pages, list) else None,
            remap_failed=any(_is(page, "UNRESERVABLE") for page in pages) if isinstance(pages, list) else None,
            throttle=self._active_violations(device, handle),
            **self._state(handle),
        )

    def sample(self, device: Device) -> Reading:
        """Only clocks, temperature, power and throttle reasons: reading these does not disturb a timed run."""
        handle = self._handle(device)
        return Reading(throttle=self._grown_residencies(device, handle), **self._state(handle))

    def _state(self, handle: object) -> dict[str, Any]:
        power = self._answers("amdsmi_get_power_info", handle)
        # The first one that is a number; which one that is depends on the generation of the device.
        names = ("socket_power", "current_socket_power", "average_socket_power")
        watts = [_number(power.get(name)) for name in names]
        return {
            "sm_clock_mhz": _number(self._clock(handle, "GFX").get("clk")),
            "memory_clock_mhz": _number(self._clock(handle, "MEM").get("clk")),
            "temperature_c": _number(
                self._ask(
                    "amdsmi_get_temp_metric",
                    handle,
                    self._constant("AmdSmiTemperatureType", "HOTSPOT"),
                    self._constant("AmdSmiTemperatureMetric", "CURRENT"),
                )
            ),
            "power_w": next((float(value) for value in watts if value is not None), None),
        }

    def _active_violations(self, device: Device, handle: object) -> tuple[str, ...]:
        """Why the clocks are low, over the 100 ms that the library takes for this answer."""
        self._grown_residencies(device, handle)
        violations = self._answers("amdsmi_get_violation_status", handle)
        return tuple(sorted(name.removeprefix("active_") for name, on in violations.items() if _is_active(name, on)))

    def _grown_residencies(self, device: Device, handle: object) -> tuple[str, ...]:
        """Why the clocks have been low since the last call, from the counters that the other answer is made of."""
        metrics = self._answers("amdsmi_get_gpu_metrics_info", handle)
        now = {name: count for key, name in _RESIDENCIES.items() if (count := _total(metrics.get(key))) is not None}
        before = self._residencies.get(device.uuid, now)
        self._residencies[device.uuid] = now
        return tuple(sorted(name for name, count in now.items() if count > before.get(name, count)))

    def _address(self, handle: object) -> str:
        return str(self._smi.amdsmi_get_gpu_device_bdf(handle)).lower()

    def _uuid(self, handle: object) -> str:
        """Partitions of a device share its UUID: further ones get the function by which the library numbers them."""
        function = self._address(handle).rpartition(".")[2]
        uuid = str(self._smi.amdsmi_get_gpu_device_uuid(handle))
        return uuid if function == "0" else f"{uuid}.{function}"

    def _place(self, handle: object) -> str:
        """What the partitions of a device share of their addresses; empty: the device does not answer."""
        return str(self._ask("amdsmi_get_gpu_device_bdf", handle) or "").lower().rpartition(".")[0]

    def _mode(self, handle: object) -> str | None:
        return _text(self._ask("amdsmi_get_gpu_compute_partition", handle))

    def _device(self, handle: object, index: int, mode: str | None) -> Device:
        smi = self._smi
        partition = None if mode == _WHOLE else mode
        here = self._address(handle)
        # Further partitions are no functions of the bus.
        address = here if partition is None else f"{self._place(handle)}.0"
        asic = smi.amdsmi_get_gpu_asic_info(handle)
        place = self._answers("amdsmi_get_gpu_enumeration_info", handle)
        nodes = _nodes(here, _number(place.get("drm_render")))
        return Device(
            uuid=self._uuid(handle),
            name=str(asic["market_name"]),
            vendor=Vendor.AMD.value,
            index=index,
            pci_address=address,
            pci_id=_pci_id(asic.get("device_id")),
            partition=partition,
            numa_node=sysfs.numa_node(address),
            nodes=nodes,
            groups=sysfs.groups(nodes),
        )

    def _handle(self, device: Device) -> object:
        try:
            handles = self._smi.amdsmi_get_processor_handles()
        except Exception as error:
            raise UnreachableError(_message(error)) from error
        for handle in handles:
            # One that is lost is another device.
            with suppress(Exception):
                if self._uuid(handle) == device.uuid:
                    return handle
        raise UnreachableError(f"no device with UUID {device.uuid} is listed any more")

    def _ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - the bindings have no types
        """One answer; None: it is not supported, this version lacks the function, or only this call fails."""
        if None in arguments:
            return None
        try:
            return getattr(self._smi, function)(*arguments)
        except Exception:  # noqa: BLE001 - without an answer the reason does not matter
            return None

    def _answers(self, function: str, handle: object) -> Mapping[str, Any]:
        answer = self._ask(function, handle)
        return answer if isinstance(answer, Mapping) else {}

    def _clock(self, handle: object, kind: str) -> Mapping[str, Any]:
        clocks = self._ask("amdsmi_get_clock_info", handle, self._constant("AmdSmiClkType", kind))
        return clocks if isinstance(clocks, Mapping) else {}

    def _constant(self, enum: str, name: str) -> object:
        return getattr(getattr(self._smi, enum, None), name, None)


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _text(value: object) -> str | None:
    """A text; None: it is empty, or the bindings write that the value does not apply."""
    return value if isinstance(value, str) and value not in ("", "N/A") else None


def _rocm_version(answer: object) -> str | None:
    """The version in the answer: a text, or from ROCm 6 on whether it was found, and the text."""
    has_text, text = answer if isinstance(answer, tuple) and len(answer) == 2 else (True, answer)
    return _text(text) if has_text else None


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _total(value: object) -> int | None:
    """A number, or the sum of those in lists of lists, which have one for each die."""
    if not isinstance(value, list):
        return _number(value)
    numbers = [number for item in value if (number := _total(item)) is not None]
    return sum(numbers) if numbers else None


def _mib(value: object, device: Device) -> int | None:
    """Bytes of a device's memory. The library counts those of the whole device for each partition."""
    number = _number(value) if device.partition is None else None
    return None if number is None else number << 20


def _watts(value: object) -> float | None:
    number = _number(value)
    if number is None:
        return None
    return number / 1e6 if number > _MOST_WATTS else float(number)


def _pci_id(device_id: object) -> str | None:
    """A device's number as `1002:74a1`. Some versions return the number as text."""
    try:
        return f"1002:{int(device_id, 16) if isinstance(device_id, str) else int(device_id):04x}"  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None


def _holding(processes: list[Any]) -> tuple[int, ...]:
    """The processes that hold memory of the device. The list also has processes that only opened the driver."""
    return tuple(
        sorted(
            process["pid"]
            for process in processes
            if isinstance(process, Mapping)
            and (_number(process.get("mem")) or _number((process.get("memory_usage") or {}).get("vram_mem")))
        )
    )


def _is(page: object, status: str) -> bool:
    """Whether a bad page has that status, which is a member of an enum or its name."""
    state = page.get("status") if isinstance(page, Mapping) else None
    return str(getattr(state, "name", state)).upper() == status


def _is_active(name: str, on: object) -> bool:
    return name.startswith("active_") and on is True


def _nodes(address: str, render: int | None = None) -> tuple[str, ...]:
    """The nodes of an AMD device: `/dev/kfd`, which all devices share, and its render node.

    Args:
        address: of the PCI device.
        render: the number of the render node, as the driver's library says. Partitions of a device have one each, which
            the PCI device does not show. None: it does not say.
    """
    if render is not None:
        return (str(sysfs.DEV / "kfd"), str(sysfs.DEV / "dri" / f"renderD{render}"))
    directory = sysfs.SYSFS / "bus/pci/devices" / address / "drm"
    return (
        str(sysfs.DEV / "kfd"),
        *(str(sysfs.DEV / "dri" / entry.name) for entry in sorted(directory.glob("renderD*"))),
    )


SUPPORT: Final = Support(
    open=AmdSmi.open,
    cdi_kind="amd.com/gpu",
    own_node=re.compile(r"/dev/dri/renderD\d+"),
    instances_share_node=False,
    needed_nodes=("kfd", "renderD"),
    nodes_remedy="see what the driver says (dmesg, amd-smi), then restart kernel-runner",
    clock_is_limit=True,
)
