"""`[clocks]` of a GPU type: what is demanded, which reasons count, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pynvml
import pytest

from runner.base.errors import ConfigError
from runner.base.gpu_types import CLOCK_REASONS, ClockPolicy, Registry, Vendor
from tests.fakes import recordings
from tests.unit.gpu_types.test_figures import overlay

_THERMAL = ("hbm_thrm", "prochot_thrm", "socket_thrm", "vr_thrm")
DEFAULT = tuple(
    sorted((*_THERMAL, "hw_power_brake_slowdown", "hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown"))
)


def test_the_shipped_types_demand_no_clock() -> None:
    """At which clocks to measure is a site's choice; heat and power supply count for every type."""
    assert {entry.clocks for entry in Registry.load().all()} == {ClockPolicy()}
    assert ClockPolicy().set_aside == DEFAULT


def test_a_type_says_its_clocks_and_another_changes_one(tmp_path: Path) -> None:
    """Tables are merged; the list of reasons is replaced as a whole."""
    (tmp_path / "a.toml").write_text(
        'extends = "A100"\nname = "A"\n[clocks]\nsm_mhz = 1410\nmemory_mhz = 1593\nset_aside = ["hw_slowdown"]\n'
    )
    registry = overlay(tmp_path, 'extends = "A"\nname = "B"\n[clocks]\nsm_mhz = 1095\nset_aside = ["sw_power_cap"]\n')
    assert registry.get("A").clocks == ClockPolicy(sm_mhz=1410, memory_mhz=1593, set_aside=("hw_slowdown",))
    assert registry.get("B").clocks == ClockPolicy(sm_mhz=1095, memory_mhz=1593, set_aside=("sw_power_cap",))
    amd = overlay(tmp_path, 'extends = "MI300"\nname = "B"\nclocks = { sm_mhz = 1900, set_aside = ["ppt_pwr"] }\n')
    assert amd.get("B").clocks == ClockPolicy(sm_mhz=1900, set_aside=("ppt_pwr",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends = 'H100'\nclocks = { sm = 1410 }", r"x\.toml: clocks\.sm: found 1410, expected: no key of this name"),
        ("extends = 'H100'\nclocks = { sm_mhz = 1 }", r"x\.toml: clocks\.sm_mhz: found 1, expected: .*50"),
        (
            "extends = 'H100'\nclocks = { set_aside = ['hw_thermal'] }",
            r"x\.toml: clocks\.set_aside: found 'hw_thermal' with vendor 'nvidia', expected reasons .*hw_slowdown",
        ),
        (
            "extends = 'MI300'\nclocks = { set_aside = ['hw_slowdown'] }",
            r"x\.toml: clocks\.set_aside: found 'hw_slowdown' with vendor 'amd', expected reasons .*socket_thrm",
        ),
        (
            "extends = 'CPU'\nclocks = { set_aside = ['hw_slowdown'] }",
            r"x\.toml: clocks\.set_aside: found 'hw_slowdown' with vendor 'none', expected none: it has no devices",
        ),
        (
            "extends = 'CPU'\nclocks = { sm_mhz = 3000 }",
            r"x\.toml: clocks\.sm_mhz: found 3000 with vendor 'none', expected no clock: it has no devices to lock",
        ),
        (
            "extends = 'MI300'\nclocks = { memory_mhz = 1300 }",
            r"x\.toml: clocks\.memory_mhz: found 1300 with vendor 'amd', expected no memory clock: .*use sm_mhz",
        ),
        (
            "vendor = 'nvidia'\nclocks = { memory_mhz = 1593 }",
            r"x\.toml: clocks\.memory_mhz: found 1593 without sample_every_s, expected both: nothing would look",
        ),
    ],
)
def test_clocks_that_cannot_be_are_refused_with_file_key_found_and_expected(
    tmp_path: Path, text: str, message: str
) -> None:
    """Also those that nothing would look at: a lock that is not verified is none."""
    with pytest.raises(ConfigError, match=message):
        overlay(tmp_path, f"name = 'X'\n{text}\n")


def test_reasons_are_those_that_the_libraries_report() -> None:
    """NVIDIA's by name and bit as in nvidia-ml-py; AMD's as a device answers; and what counts is among them."""
    prefix = "nvmlClocksEventReason"
    for position, name in enumerate(CLOCK_REASONS[Vendor.NVIDIA]):
        camel = "".join(part.capitalize() for part in name.split("_"))
        assert getattr(pynvml, prefix + camel) == 0x2 << position
    bits = {getattr(pynvml, name) for name in vars(pynvml) if re.fullmatch(prefix + "(?!All|None|GpuIdle).*", name)}
    assert len(bits) == len(CLOCK_REASONS[Vendor.NVIDIA])
    for _, answers in recordings.AMD.values():
        names = [name for name in answers["amdsmi_get_violation_status"] if name.startswith("active_")]
        assert {name.removeprefix("active_") for name in names} <= set(CLOCK_REASONS[Vendor.AMD])
    assert set(DEFAULT) <= {name for names in CLOCK_REASONS.values() for name in names}
