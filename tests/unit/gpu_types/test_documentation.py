"""docs/adding-a-gpu-type.md is true: its files load, and its table has every key."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

from runner.base.config import Config
from runner.base.gpu_types import CLOCK_REASONS, ClockPolicy, Dtype, Figures, GpuType, Registry, Vendor
from runner.base.gpu_types.advice import advise

TEXT = (Path(__file__).resolve().parents[3] / "docs/adding-a-gpu-type.md").read_text(encoding="utf-8")
BLOCKS = [
    "\n".join(line.removeprefix(indent) for line in block.splitlines())
    for indent, block in re.findall(r"^( *)```toml\n(.*?)```", TEXT, flags=re.MULTILINE | re.DOTALL)
]


def names(record: type) -> set[str]:
    """The fields of a record."""
    return {field.name for field in dataclasses.fields(record)}


def test_every_file_of_the_page_loads_and_does_what_the_page_says(tmp_path: Path) -> None:
    """A newcomer may copy any of them."""
    types = [block for block in BLOCKS if "name = " in block]
    assert len(types) == 9
    for number, block in enumerate(types):
        (tmp_path / f"{number}.toml").write_text(block, encoding="utf-8")
    registry = Registry.load(tmp_path)
    assert [(entry.name, advice) for entry in registry.all() for advice in advise(entry)] == []
    assert [entry.name for entry in registry.matching(Vendor.NVIDIA, "NVIDIA GeForce RTX 5090")] == ["RTX5090"]
    assert registry.get("H200").environment["CUTLASS_PATH"] == "/opt/cutlass"
    assert (registry.get("H100x4").count, registry.get("H100x4").nvcc_arch) == (4, "90a")
    assert not registry.get("H100_SITE_B").detect
    whole, part = "NVIDIA H100 80GB HBM3", "1g.10gb"
    assert [entry.name for entry in registry.matching(Vendor.NVIDIA, whole, partition=part)] == ["H100_1G"]
    assert registry.get("CUDA_EMULATED").emulate_cuda
    assert registry.get("RTX5090").device.peak_tflops[Dtype.FP8] == 838
    assert registry.get("CPU").device.cache_bytes == 256 << 20
    assert (registry.get("A100").clocks.sm_mhz, registry.get("A100").clocks.memory_mhz) == (1095, 1593)
    usual = {name for name in ClockPolicy().set_aside if name in CLOCK_REASONS[Vendor.NVIDIA]}
    assert set(registry.get("L4").clocks.set_aside) == {*usual, "sw_power_cap"}


def test_the_page_shows_what_is_shipped() -> None:
    """A product from the registry's own file, and which types ran on hardware."""
    (block,) = [block for block in BLOCKS if block.startswith("[[products]]")]
    (shown,) = tomllib.loads(block)["products"]
    figures = Registry.load().get("H100").figures_of("NVIDIA H100 NVL")
    assert shown["device_names"] == ["NVIDIA H100 NVL"]
    assert shown["device"] == {"memory_gib": figures.memory_gib, "bandwidth_gb_s": figures.bandwidth_gb_s}
    (said,) = re.findall(r"Of the shipped types only ((?:`\w+`[, and]*)+) (?:has|have) runs", TEXT)
    assert re.findall(r"`(\w+)`", said) == [entry.name for entry in Registry.load().all() if entry.hardware_runs]


def test_the_tables_of_figures_and_clocks_have_every_key() -> None:
    """And every data type, and for each vendor what may stand in `set_aside`, as the registry takes it; no other."""
    for table, record in (("device", Figures), ("clocks", ClockPolicy)):
        assert set(re.findall(rf"^\| `{table}\.(\w+)` \|", TEXT, flags=re.MULTILINE)) == names(record)
    (types,) = re.findall(r"rates by data type \(`([^`]*)`\)", TEXT)
    assert types.split() == list(Dtype)
    for vendor, name in ((Vendor.NVIDIA, "NVIDIA"), (Vendor.AMD, "AMD")):
        (listed,) = re.findall(rf"^- {name}: ((?:`\w+`[,\s]*)+)", TEXT, flags=re.MULTILINE)
        assert tuple(re.findall(r"`(\w+)`", listed)) == CLOCK_REASONS[vendor]


def test_the_slots_of_the_page_are_a_configuration() -> None:
    """The multi-device example is accepted as it stands."""
    (block,) = [block for block in BLOCKS if block.startswith("# /etc/kernel-runner/config.toml")]
    slots = Config.model_validate(tomllib.loads(block)).slots
    assert [len(slot.devices) for slot in slots if not isinstance(slot, str)] == [4]


def test_the_table_has_every_key_and_the_true_defaults() -> None:
    """No key is missing from the page, and none is left over."""
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.+) \|$", TEXT, flags=re.MULTILINE))
    assert set(rows) == {*names(GpuType), "extends"}
    for field in dataclasses.fields(GpuType):
        key = field.name
        if field.default is field.default_factory is dataclasses.MISSING:
            assert rows[key] == "required"
        elif isinstance(field.default, bool):
            assert rows[key] == str(field.default).lower()
        elif isinstance(field.default, int | float):
            assert rows[key] == f"{field.default:g}"
