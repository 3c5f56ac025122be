"""`gpu clocks`: on devices whose libraries are replaced at the import boundary."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runner.cli.app import ExitCode
from tests.fakes.recordings import Answers, nvidia
from tests.unit.cli.gpu_host import GpuHost

CLOCKS = {"1": 210, "2": 1593}
HIGHEST = {"1": 1410, "2": 1593}
SM, MEMORY = 1, 2
#: What the command prints of these devices, and with --lock.
SHOWN = (
    "✓ nvidia 0: 'NVIDIA A100-SXM4-80GB' is A100, which demands SM 1095 MHz, memory 1593 MHz; "
    "now: SM 210 MHz of at most 1410, memory 1593 MHz of at most 1593\n"
    "✓ nvidia 1: 'NVIDIA L4' is L4, which demands no clock; "
    "now: SM 345 MHz of at most 1980, memory 2619 MHz of at most 2619\n"
)
LOCKED = (
    "✓ nvidia 0: 'NVIDIA A100-SXM4-80GB' is locked: SM 1095 MHz, memory 1593 MHz\n"
    "· nvidia 1: 'NVIDIA L4' is left as it is: L4 demands no clock\n"
)


def a100(**more: Any) -> Answers:  # noqa: ANN401 - of any kind
    """A device that is idle."""
    answers = {"nvmlDeviceGetClockInfo": CLOCKS, "nvmlDeviceGetMaxClockInfo": HIGHEST, **more}
    return nvidia("NVIDIA A100-SXM4-80GB", 0x20B2, 80, (8, 0), **answers)


class Host(GpuHost):
    """A host of eight cores, as root sees it, with a device of which clocks are demanded and one of which none are."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        devices = [a100(), nvidia("NVIDIA L4", 0x27B8, 23, (8, 9), number=1)]
        super().__init__(tmp_path, monkeypatch, capsys, devices)
        self.types.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
        self.demand("A100", "sm_mhz = 1095\nmemory_mhz = 1593")

    def demand(self, name: str, clocks: str) -> None:
        """Let a built-in type demand clocks."""
        (self.types / f"{name}.toml").write_text(f'extends = "{name}"\nname = "{name}"\n[clocks]\n{clocks}\n')

    def clocks(self, *arguments: str) -> tuple[int, str, str]:
        """Run `kernel-runner gpu clocks`: exit code, stdout, stderr."""
        return self.gpu("clocks", *arguments)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Host:
    """With a device of which clocks are demanded and one of which none are."""
    return Host(tmp_path, monkeypatch, capsys)


def test_clocks_are_shown_and_locked(host: Host) -> None:
    """What is demanded, what is, what can be; then the demand is met, and the other device left alone."""
    assert host.clocks() == (ExitCode.OK, SHOWN, "")
    assert host.nvml.locked == {}
    assert host.clocks("--lock") == (ExitCode.OK, LOCKED, "")
    assert host.nvml.locked == {(0, SM): 1095, (0, MEMORY): 1593}
    code, text, _ = host.clocks("--release")
    assert (code, host.nvml.locked) == (ExitCode.OK, {})
    assert text.splitlines()[0] == "✓ nvidia 0: 'NVIDIA A100-SXM4-80GB' is released"


def test_clocks_as_json_have_all_that_is_known(host: Host) -> None:
    """For each device what is demanded, what is, what can be and what it refused."""
    host.devices[0] = a100(nvmlDeviceSetMemoryLockedClocks={"error": "NotSupported"})
    code, text, _ = host.clocks("--lock", "--json")
    said = json.loads(text)
    assert code == ExitCode.NOT_ACCEPTED
    first, second = said["devices"]
    assert (first["types"], first["demanded"]) == (["A100"], {"sm_mhz": 1095, "memory_mhz": 1593})
    assert (first["now"], first["highest"]) == (
        {"sm_mhz": 210, "memory_mhz": 1593},
        {"sm_mhz": 1410, "memory_mhz": 1593},
    )
    assert first["refused"].startswith("memory clock at 1593 MHz: the device or its driver cannot")
    assert (second["types"], second["demanded"], second["refused"]) == (
        ["L4"],
        {"sm_mhz": None, "memory_mhz": None},
        None,
    )
    assert [check["mark"] for check in said["checks"]] == ["failed", "note"]
    assert first["refused"] in said["checks"][0]["found"]


def test_only_root_locks(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users read who may, and how to do it for good. Every user may look."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for flag in ("--lock", "--release"):
        code, out, err = host.clocks(flag)
        assert (code, out) == (ExitCode.USAGE, "")
        assert "found user 1000, expected root" in err
        assert "run it as root, or at each start of the daemon by the lines" in err
    assert host.nvml.locked == {}
    assert host.clocks()[0] == ExitCode.OK
    assert "found --lock and --release, expected one of them" in host.clocks("--lock", "--release")[2]


def test_a_clock_that_a_device_never_reaches_is_said(host: Host) -> None:
    """Before anybody waits for runs that are refused one by one."""
    host.demand("A100", "sm_mhz = 1980")
    code, text, _ = host.clocks()
    assert code == ExitCode.NOT_ACCEPTED
    assert "clocks.sm_mhz: found 1980, expected 1410 at most: correct the GPU type" in text


def test_a_driver_that_forgets_is_warned_of(host: Host) -> None:
    """Without persistence mode a lock ends with the last program that has the device open."""
    host.devices[0] = a100(nvmlDeviceGetPersistenceMode=0)
    code, text, _ = host.clocks("--lock")
    assert code == ExitCode.OK
    assert "! nvidia 0: persistence mode is off" in text
