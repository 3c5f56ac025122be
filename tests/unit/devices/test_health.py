"""The health gate: the decision over facts, and the reading of devices that misbehave."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from runner.base.device_facts import Reading, UnreachableError
from runner.base.gpu_types import ClockPolicy, GpuType, Vendor
from runner.base.model import Device, Slot
from runner.devices import processes
from runner.devices.gate import HealthGate, Inspection
from runner.devices.health import SLACK_BYTES, XID_HOLD_S, Health, History, clock_deviations, judge, spoiled
from runner.devices.quarantine import Quarantine
from runner.devices.vendors.nvidia import Nvml
from tests.fakes.nvml import Nvml as FakeNvml
from tests.fakes.recordings import lost, nvidia
from tests.support.waiting import PATIENCE_S

IDLE = Reading(used_bytes=600 << 20, processes=(7,), uncorrected=0, remap_pending=False, remap_failed=False)
HISTORY = History(idle_bytes=600 << 20, residents=frozenset({7}))
L4 = GpuType(name="L4", vendor=Vendor.NVIDIA)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"used_bytes": (600 << 20) + SLACK_BYTES}, ""),
        ({"throttle": ("sw_power_cap", "applications_clocks_setting")}, ""),
        ({"uncorrected": None, "processes": None, "used_bytes": None, "remap_pending": None}, ""),
        ({"uncorrected": 2}, "2 memory errors could not be corrected; reset the device"),
        ({"remap_pending": True}, "memory is to be remapped; reset the device"),
        ({"throttle": ("hw_thermal_slowdown",)}, "its clocks are held down: hw_thermal_slowdown"),
        ({"remap_failed": True}, "memory rows could not be remapped"),
        ({"recovery": "reset the device"}, "the driver asks to reset the device"),
        ({"compute_mode": "default"}, ""),
        (
            {"compute_mode": "exclusive_process"},
            "its compute mode is exclusive_process, but judge and worker use it together",
        ),
        ({"compute_mode": "prohibited"}, "its compute mode is prohibited"),
        ({"processes": (7, 4711)}, "processes of no known job compute on it: 4711"),
        ({"used_bytes": 2000 << 20}, "1400 MiB more in use than when it is idle"),
    ],
)
def test_each_fact_has_its_consequence(changes: dict[str, Any], reason: str) -> None:
    """What is not known counts as fine; what is wrong says so."""
    found = judge(replace(IDLE, **changes), HISTORY, ClockPolicy())
    assert "; ".join(found.reasons).startswith(reason)
    assert bool(found.reasons) == bool(reason)


@pytest.mark.parametrize(
    ("set_aside", "throttle", "fit"),
    [
        (("sw_power_cap",), ("sw_power_cap",), False),
        (("sw_power_cap",), ("hw_thermal_slowdown",), True),
        ((), ("hw_thermal_slowdown",), True),
    ],
)
def test_a_gpu_type_says_which_reasons_count(
    set_aside: tuple[str, ...], throttle: tuple[str, ...], *, fit: bool
) -> None:
    """In place of those that count for every type; a clock that is demanded says nothing of an idle device."""
    clocks = ClockPolicy(sm_mhz=1410, set_aside=set_aside)
    assert judge(replace(IDLE, throttle=throttle, sm_clock_mhz=345), HISTORY, clocks).fit is fit


@pytest.mark.parametrize(
    ("vendor", "clocks", "sm_mhz", "memory_mhz", "expected"),
    [
        (Vendor.NVIDIA, ClockPolicy(), 345, None, ()),
        (Vendor.NVIDIA, ClockPolicy(sm_mhz=1410), 1410, 405, ()),
        (Vendor.NVIDIA, ClockPolicy(sm_mhz=1410), 1395, None, ()),
        (Vendor.NVIDIA, ClockPolicy(sm_mhz=1410), 1425, None, ()),
        (Vendor.NVIDIA, ClockPolicy(sm_mhz=1410), 1394, None, ("sm_clock_off",)),
        (Vendor.NVIDIA, ClockPolicy(sm_mhz=1410), 1426, None, ("sm_clock_off",)),
        (Vendor.NVIDIA, ClockPolicy(sm_mhz=1410), None, None, ("sm_clock_unknown",)),
        (Vendor.NVIDIA, ClockPolicy(memory_mhz=6250), 345, 6312, ()),
        (Vendor.NVIDIA, ClockPolicy(memory_mhz=6250), 345, 6313, ("memory_clock_off",)),
        (Vendor.NVIDIA, ClockPolicy(memory_mhz=6250), 345, None, ("memory_clock_unknown",)),
        (Vendor.NVIDIA, ClockPolicy(sm_mhz=1410, memory_mhz=1593), 345, 405, ("sm_clock_off", "memory_clock_off")),
        (Vendor.AMD, ClockPolicy(sm_mhz=1900), 132, None, ()),
        (Vendor.AMD, ClockPolicy(sm_mhz=1900), 1919, None, ()),
        (Vendor.AMD, ClockPolicy(sm_mhz=1900), 1920, None, ("sm_clock_off",)),
        (Vendor.AMD, ClockPolicy(sm_mhz=1900), None, None, ("sm_clock_unknown",)),
    ],
)
def test_a_lock_is_verified(
    vendor: Vendor, clocks: ClockPolicy, sm_mhz: int | None, memory_mhz: int | None, expected: tuple[str, ...]
) -> None:
    """By 1 % or 15 MHz, whichever is more; AMD's limit from above alone; what is not told is not believed."""
    reading = Reading(sm_clock_mhz=sm_mhz, memory_clock_mhz=memory_mhz)
    assert clock_deviations(reading, GpuType(name="X", vendor=vendor, clocks=clocks)) == expected


@pytest.mark.parametrize(
    ("xid", "grave"),
    [
        *((xid, True) for xid in (48, 64, 74, 79, 95, 119)),
        *((xid, False) for xid in (11, 13, 25, 31, 63, 80, 106, 107, 137)),
    ],
)
def test_a_program_that_crashes_is_no_fault_of_the_device(xid: int, *, grave: bool) -> None:
    """Xids of a program's own making neither keep the slot out nor void a result."""
    assert (judge(IDLE, replace(HISTORY, xids=(xid,)), ClockPolicy()).fit) != grave
    assert (spoiled(IDLE, replace(IDLE, xids=(xid,))) is not None) == grave


def test_errors_in_memory_during_a_run_spoil_it() -> None:
    """Those before it do not, nor those of a device that does not count them."""
    assert spoiled(replace(IDLE, uncorrected=1), replace(IDLE, uncorrected=1)) is None
    assert spoiled(replace(IDLE, uncorrected=None), replace(IDLE, uncorrected=None)) is None
    assert spoiled(IDLE, replace(IDLE, uncorrected=3)) == "3 memory errors could not be corrected"


class Rig:
    """A gate over devices that a test changes, on a clock that it moves."""

    def __init__(self, count: int = 1, **how: Any) -> None:  # noqa: ANN401 - the gate's
        self.answers = [nvidia("NVIDIA L4", 0x27B8, 23, (8, 9), number=number) for number in range(count)]
        self.fake = FakeNvml(lambda: self.answers)
        self.now_s = 0.0
        self.gpu = L4
        self.quarantine = Quarantine(retry_s=0.01)
        self.changed = threading.Semaphore(0)
        self.quarantine.on_change = self.changed.release
        self.gate = HealthGate(
            self.quarantine,
            type_of=lambda _: self.gpu,
            openers={Vendor.NVIDIA: self._open},
            **{"settle_s": 0.0, "limit_s": PATIENCE_S, "clock": lambda: self.now_s, **how},
        )
        self.slots = [
            Slot(
                name=f"nvidia{number}",
                gpu_type="L4",
                devices=(Device(uuid=answers["nvmlDeviceGetUUID"], name="NVIDIA L4", vendor="nvidia", index=number),),
                cpus=(number,),
            )
            for number, answers in enumerate(self.answers)
        ]

    def _open(self) -> Nvml:
        self.fake.nvmlInit()
        return Nvml(self.fake)

    def wait(self, what: Callable[[], bool]) -> None:
        """Until it is so, looking at each change of the quarantine."""
        while not what():
            assert self.changed.acquire(timeout=PATIENCE_S)


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Two devices in two slots."""
    made = Rig(2)
    yield made
    made.quarantine.close()
    made.gate.close()


def test_a_lost_device_keeps_its_own_slot_out_and_comes_back(rig: Rig) -> None:
    """The other one is fit all the while; as soon as the device answers again, so is its slot."""
    whole = rig.answers[1]
    assert rig.gate.inspect(rig.slots[1]).health.fit
    rig.answers[1] = lost(whole)
    found = rig.gate.inspect(rig.slots[1])
    assert (found.readings, found.health.fit) == ((None,), False)
    assert "NVMLError_GpuIsLost" in rig.quarantine.reasons()["nvidia1"]
    assert rig.gate.inspect(rig.slots[0]).health.fit
    assert set(rig.quarantine.reasons()) == {"nvidia1"}
    rig.answers[1] = whole
    rig.wait(lambda: not rig.quarantine.reasons())


def test_a_call_that_hangs_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is out after the limit, its neighbour answers, and it is back when the driver lets go."""
    rig, release = Rig(2, limit_s=0.2), threading.Event()
    real = rig.fake.nvmlDeviceGetHandleByUUID

    def hang(uuid: str) -> object:
        if uuid == rig.slots[0].devices[0].uuid:
            release.wait(PATIENCE_S)
        return real(uuid)

    monkeypatch.setattr(rig.fake, "nvmlDeviceGetHandleByUUID", hang, raising=False)
    assert not rig.gate.inspect(rig.slots[0]).health.fit
    assert "did not answer within 0.2 s" in rig.quarantine.reasons()["nvidia0"]
    # The limit is the hanging device's alone: a busy machine may take longer to start the neighbour's thread.
    rig.gate._limit_s = PATIENCE_S
    assert rig.gate.inspect(rig.slots[1]).health.fit
    release.set()
    rig.wait(lambda: not rig.quarantine.reasons())
    rig.quarantine.close()


def test_the_driver_may_take_longer_to_start_than_a_device_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without persistence mode it starts every device of the host first. Only a driver that never starts is out."""
    rig, release = Rig(1, limit_s=0.1, open_limit_s=PATIENCE_S), threading.Event()
    found: queue.SimpleQueue[bool] = queue.SimpleQueue()
    start = rig.fake.nvmlInit

    def start_slowly() -> None:
        release.wait(PATIENCE_S)
        start()

    monkeypatch.setattr(rig.fake, "nvmlInit", start_slowly, raising=False)
    threading.Thread(target=lambda: found.put(rig.gate.inspect(rig.slots[0]).health.fit), daemon=True).start()
    with pytest.raises(queue.Empty):
        found.get(timeout=0.5)
    # A busy machine may take longer than the device's limit to go on.
    rig.gate._watch(rig.slots[0].devices[0]).calls._limit_s = PATIENCE_S
    release.set()
    assert found.get(timeout=PATIENCE_S) is True
    rig.quarantine.close()
    release.clear()
    never = Rig(1, open_limit_s=0.1)
    monkeypatch.setattr(never.fake, "nvmlInit", start_slowly, raising=False)
    assert not never.gate.inspect(never.slots[0]).health.fit
    assert "its driver did not start within 0.1 s" in never.quarantine.reasons()["nvidia0"]
    release.set()
    never.quarantine.close()


def test_the_compute_mode_is_read_and_clients_of_a_service_count_as_processes(rig: Rig) -> None:
    """Judge and worker cannot share an exclusive device. Clients of the multi-process service compute beside them."""
    whole = rig.answers[0]
    rig.answers[0] = {**whole, "nvmlDeviceGetComputeMode": 0}
    before = rig.gate.inspect(rig.slots[0])
    (reading,) = before.readings
    assert (before.health.fit, reading and reading.compute_mode) == (True, "default")
    rig.answers[0] = {**whole, "nvmlDeviceGetComputeMode": 3}
    assert not rig.gate.inspect(rig.slots[0]).health.fit
    assert "exclusive_process" in rig.quarantine.reasons()["nvidia0"]
    rig.answers[0] = {**whole, "nvmlDeviceGetMPSComputeRunningProcesses": [{"pid": 4711}]}
    assert "compute on it: 4711" in rig.gate.inspect(rig.slots[0]).health.reasons[0]


def test_a_critical_error_voids_the_run_and_is_forgotten_after_a_while(rig: Rig) -> None:
    """Xid 79 during a run: its result does not count, and the slot is out until the hold is over."""
    slot = rig.slots[0]
    before = rig.gate.inspect(slot)
    rig.answers[0] = {**rig.answers[0], "xids": [13, 79]}
    after = rig.gate.inspect(slot)
    assert [reading.xids for reading in after.readings if reading] == [(13, 79)]
    assert "Xid 79 during the run" in (rig.gate.spoiled(slot, before, after) or "")
    assert "Xid 79 within 120 s" in rig.quarantine.reasons()["nvidia0"]
    rig.now_s += XID_HOLD_S
    rig.wait(lambda: not rig.quarantine.reasons())


def test_what_a_run_leaves_behind_keeps_the_slot_out_until_it_is_gone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process and its memory, held against what was there before any run."""
    clean = {**rig.answers[0], "nvmlDeviceGetComputeRunningProcesses": [{"pid": 7, "usedGpuMemory": 1}]}
    rig.answers[0] = clean
    slot = rig.slots[0]
    assert rig.gate.inspect(slot).health.fit
    left = [{"pid": 7, "usedGpuMemory": 1}, {"pid": 99, "usedGpuMemory": 1}]
    rig.answers[0] = {**clean, "nvmlDeviceGetComputeRunningProcesses": left}
    monkeypatch.setattr(processes, "owner_of", {99: "python3, uid 10002"}.get)
    reason = rig.gate.inspect(slot).health.reasons[0]
    assert reason.endswith("processes of no known job compute on it: 99 (python3, uid 10002)")
    rig.answers[0] = clean
    rig.wait(lambda: not rig.quarantine.reasons())


@pytest.mark.parametrize("idle_mib", [0, 1, 600])
def test_memory_that_no_process_holds_keeps_the_slot_out(rig: Rig, idle_mib: int) -> None:
    """However little was in use before: an idle T4 reports none."""
    whole = rig.answers[0]
    for mib, fit in ((idle_mib, True), (idle_mib + 2000, False)):
        rig.answers[0] = {**whole, "nvmlDeviceGetMemoryInfo": {"total": 15 << 30, "used": mib << 20, "free": 0}}
        assert rig.gate.inspect(rig.slots[0]).health.fit is fit


def test_a_device_that_no_thread_could_ask_is_asked_again(rig: Rig) -> None:
    """A host may have no thread left for a moment."""
    with (
        patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")),
        pytest.raises(UnreachableError, match="nothing could ask it: can't start new thread"),
    ):
        rig.gate._watch(rig.slots[0].devices[0]).calls.ask(lambda library, device: library.read(device))
    assert rig.gate.inspect(rig.slots[0]).health.fit


def test_the_metadata_of_a_run_has_settings_and_states(rig: Rig) -> None:
    """Before, after and, where the type asks for it, between. An operator may change settings at any time."""
    slot = rig.slots[0]
    before = rig.gate.inspect(slot)
    sampled = threading.Event()
    changed = {"nvmlDeviceGetClockInfo": {"1": 1980, "2": 6251}, "nvmlDeviceGetEnforcedPowerLimit": 400_000}
    rig.answers[0] = {**rig.answers[0], **changed}
    real = rig.fake.nvmlDeviceGetHandleByUUID

    def seen(uuid: str) -> object:
        sampled.set()
        return real(uuid)

    vars(rig.fake)["nvmlDeviceGetHandleByUUID"] = seen
    with rig.gate.sampling(slot, 0.05) as sampler:
        assert sampled.wait(PATIENCE_S)
    (one,) = rig.gate.metadata(slot, before, rig.gate.inspect(slot), sampler)
    assert (one["driver"], one["power_limit_w"], one["ecc"]) == ("580.95.05", 400.0, True)
    assert (one["before"]["sm_clock_mhz"], one["after"]["sm_clock_mhz"]) == (345, 1980)
    assert one["during"]["samples"] >= 1
    assert one["during"]["sm_clock_mhz"] == {"min": 1980, "mean": 1980.0, "max": 1980}
    assert "clocks_off" not in one["during"]
    with rig.gate.sampling(slot, None) as sampler:
        assert sampler is None


def test_a_run_off_the_clocks_that_are_demanded_says_so(rig: Rig) -> None:
    """How many of its readings were; idle, the device is fit, unless its type counts the reason it gives."""
    slot = rig.slots[0]
    rig.gpu = replace(L4, clocks=ClockPolicy(sm_mhz=1410, set_aside=("sw_power_cap",)))
    before = rig.gate.inspect(slot)
    assert before.health.fit
    sampled = threading.Event()
    with rig.gate.sampling(slot, 0.05, on_round=lambda _: sampled.set()) as sampler:
        assert sampled.wait(PATIENCE_S)
    (one,) = rig.gate.metadata(slot, before, rig.gate.inspect(slot), sampler)
    assert one["during"]["clocks_off"] == {"sm_clock_off": one["during"]["samples"]}
    rig.answers[0] = {**rig.answers[0], "nvmlDeviceGetCurrentClocksEventReasons": 0x4}
    assert rig.gate.inspect(slot).health.reasons[0].endswith("its clocks are held down: sw_power_cap")
    rig.gpu = L4
    rig.wait(lambda: not rig.quarantine.reasons())


def test_errors_of_programs_are_none_of_the_device(rig: Rig) -> None:
    """A submission that crashes raises no alarm: what is counted is what makes a run void.

    A slot without devices is always fit: there is nothing to ask.
    """
    readings = (replace(IDLE, xids=(13, 79, 31)), replace(IDLE, xids=(31, 43, 63)), None)
    assert Inspection(readings=readings, health=Health()).xids == (1, 0, 0)
    found = rig.gate.inspect(Slot(name="cpu0", gpu_type="CPU", devices=(), cpus=(0,)))
    assert (found.readings, found.health.fit) == ((), True)
