"""Figures of devices: how files state them, and whether those of the shipped types can be true."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.errors import ConfigError
from runner.base.gpu_types import Dtype, Figures, GpuType, Product, Registry, Vendor, advise

DEVICES = [entry for entry in Registry.load().all() if entry.vendor is not Vendor.NONE]
#: Every device that is described: a type's own figures, and those of its products.
FIGURES = [
    pytest.param(figures, id=f"{entry.name}-{index}")
    for entry in DEVICES
    for index, figures in enumerate((entry.device, *(product.device for product in entry.products)))
]


def overlay(directory: Path, text: str) -> Registry:
    """The registry with one more file."""
    (directory / "x.toml").write_text(text, encoding="utf-8")
    return Registry.load(directory)


@pytest.mark.parametrize("entry", DEVICES, ids=lambda entry: str(entry.name))
def test_every_figure_of_a_shipped_type_has_its_source(entry: GpuType) -> None:
    """Memory, cache, bandwidth and rates are there, and so is what each was taken from."""
    figures = entry.device
    assert figures.memory_gib
    assert figures.l2_mib
    assert figures.bandwidth_gb_s
    stated = {
        field.name
        for field in dataclasses.fields(figures)
        if field.name != "sources" and getattr(figures, field.name) not in (None, {})
    }
    assert set(figures.sources) == stated
    assert {Dtype.FP16, Dtype.FP32, Dtype.INT8} <= set(figures.peak_tflops)


@pytest.mark.parametrize("figures", FIGURES)
def test_the_rates_of_a_shipped_type_are_plausible(figures: Figures) -> None:
    """As far as those of all generations so far are alike; that none is with sparsity, `advise` says."""
    rate = figures.peak_tflops
    assert rate.get(Dtype.BF16, rate[Dtype.FP16]) == rate[Dtype.FP16]
    assert rate.get(Dtype.FP8, rate[Dtype.INT8]) == rate[Dtype.INT8]
    assert 3.9 < rate[Dtype.FP16] / rate[Dtype.FP32] < 30
    assert 0.9 < rate[Dtype.FP32] / rate.get(Dtype.FP64, rate[Dtype.FP32]) < 2.1
    # Operations per byte of memory traffic at which both limits meet.
    assert 100 < rate[Dtype.FP16] * 1e3 / (figures.bandwidth_gb_s or 0) < 450


@pytest.mark.parametrize("entry", Registry.load().all(), ids=lambda entry: str(entry.name))
def test_there_is_nothing_to_remark_on_a_shipped_type(entry: GpuType) -> None:
    """Complete, with sources, dense."""
    assert list(advise(entry)) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"memory_gib": None}, ["device.memory_gib: found nothing, so that cases are not held"]),
        ({"bandwidth_gb_s": None}, ["device.bandwidth_gb_s: found nothing, so that results have no speed of light"]),
        ({"peak_tflops": {}}, ["device.peak_tflops: found nothing, so that results have no speed of light"]),
        ({"l2_mib": None}, ["device.l2_mib: found nothing, so that no time is too short"]),
        (
            {"peak_tflops": {Dtype.FP16: 100, Dtype.FP8: 400, Dtype.FP4: 300}},
            [
                "device.peak_tflops: found fp8 400 and fp16 100, expected fp8 to be once to twice fp16",
                "device.peak_tflops: found fp4 300 and fp8 400, expected fp4 to be once to twice fp8",
            ],
        ),
        # GeForce: adds in FP16 at twice the rate of FP32.
        ({"peak_tflops": {Dtype.TF32: 104.8, Dtype.BF16: 209.5, Dtype.FP16: 419, Dtype.FP8: 838}}, []),
        (
            {"peak_tflops": {Dtype.BF16: 209.5, Dtype.FP16: 838}},
            ["device.peak_tflops: found fp16 838 and bf16 209.5, expected fp16 to be once to twice bf16"],
        ),
        ({"sources": {}}, ["device.sources: found nothing for memory_gib, l2_mib, bandwidth_gb_s, peak_tflops, whose"]),
    ],
)
def test_what_is_incomplete_or_implausible_is_remarked_on(change: dict[str, Any], found: list[str]) -> None:
    """Each remark names the key, what was found and what follows from it, and says what to do."""
    figures = Registry.load().get("MI250").device
    entry = GpuType(name="X", vendor=Vendor.AMD, device_names=("X",), device=replace(figures, **change))
    advice = list(advise(entry))
    assert len(advice) == len(found)
    assert all(one.fact.startswith(start) for one, start in zip(advice, found, strict=True))
    assert all(one.remedy.startswith("enter ") for one in advice)


def test_a_type_that_nothing_is_recognised_as_is_remarked_on() -> None:
    """It could only be served by naming devices in `slots`; and a product's figures are looked at as well."""
    figures = Registry.load().get("MI250").device
    wrong = replace(figures, sources={**figures.sources, "memory_gib": "x"}, peak_tflops={Dtype.FP16: 1, Dtype.FP8: 9})
    products = (Product(device_names=("X",), device=wrong),)
    (first, second) = advise(GpuType(name="X", vendor=Vendor.AMD, device=figures, products=products))
    assert first.fact == "device_names: found none, so that no device is recognised as it"
    assert second.fact.startswith("products[0].device.peak_tflops: found fp8 9 and fp16 1")


@pytest.mark.parametrize(
    ("gpu_type", "device", "memory_gib", "bandwidth_gb_s", "fp16"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", 80, 3350, 989.4),
        ("H100", "NVIDIA H100 PCIe", 80, 2039, 756),
        ("A100", "NVIDIA A100-PCIE-40GB", 40, 1555, 312),
        ("MI250", "AMD Instinct MI250X", 64, 1638.4, 191.5),
        ("MI300x8", "AMD Instinct MI300X", 192, 5300, 1307.4),
    ],
)
def test_a_product_has_its_own_figures(
    gpu_type: str, device: str, memory_gib: float, bandwidth_gb_s: float, fp16: float
) -> None:
    """The driver's name of a device decides; types of several devices have those of one.

    Without a device they are the type's: a task is checked on hosts without it.
    """
    entry = Registry.load().get(gpu_type)
    figures = entry.figures_of(device)
    assert (figures.memory_gib, figures.bandwidth_gb_s) == (memory_gib, bandwidth_gb_s)
    assert figures.peak_tflops[Dtype.FP16] == fp16
    # Its product's device is one of the type's.
    assert entry in Registry.load().matching(entry.vendor, device)
    assert entry.figures_of(None) is entry.figures_of("NVIDIA H100 64GB HBM2") is entry.device


def test_an_overlay_changes_one_figure_and_keeps_the_others(tmp_path: Path) -> None:
    """Tables within tables are merged, and products start from what the overlay made of the type.

    The CPU type has no figures until an operator states them: processors differ.
    """
    text = 'extends = "H100"\nname = "X"\n[device]\nl2_mib = 51\n[device.peak_tflops]\nint4 = 7\n'
    before, after = Registry.load().get("H100"), overlay(tmp_path, text).get("X")
    rates = {**before.device.peak_tflops, Dtype.INT4: 7.0}
    assert after.device == replace(before.device, l2_mib=51.0, peak_tflops=rates)
    assert [product.device.l2_mib for product in after.products] == [51.0, 51.0]
    assert [product.device.bandwidth_gb_s for product in after.products] == [2039.0, 3900.0]
    assert Registry.load().get("CPU").device == Figures()
    cpu = overlay(tmp_path, 'extends = "CPU"\nname = "CPU"\n[device]\nl3_mib = 32\npeak_tflops = { fp32 = 1 }\n').get(
        "CPU"
    )
    assert cpu.device == Figures(l3_mib=32.0, peak_tflops={Dtype.FP32: 1.0})
    assert cpu.device.cache_bytes == 32 << 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[device]\nl2 = 3", r"x\.toml: device\.l2: found 3, expected: no key of this name"),
        ("[device]\nmemory_gib = 0", r"x\.toml: device\.memory_gib: found 0, expected: a number above 0"),
        ("[device]\nbandwidth_gb_s = '3 TB/s'", r"x\.toml: device\.bandwidth_gb_s: found '3 TB/s', expected: .*number"),
        ("[device]\npeak_tflops = { fp9 = 1 }", r"x\.toml: device\.peak_tflops\.fp9.*: found 'fp9', expected: .*'fp8'"),
        ("[device]\npeak_tflops = { fp8 = -1 }", r"x\.toml: device\.peak_tflops\.fp8: found -1"),
        ("[device]\nsources = { l2 = 'x' }", r"device\.sources: .*'l2'.*, expected: names of figures: memory_gib"),
        ("device = 3", r"x\.toml: device: found 3, expected"),
        ("products = [3]", r"x\.toml: products\.0: found 3, expected"),
        ("[[products]]\ndevice_names = ['(']\ndevice = {}", r"device_names\.0: .*expected: a regular"),
        ("[[products]]\ndevice_names = ['a']", r"x\.toml: products\.0\.device: found nothing, expected"),
    ],
)
def test_a_wrong_figure_is_refused_with_file_key_found_and_expected(tmp_path: Path, text: str, message: str) -> None:
    """Every mistake names where it is and what would be right."""
    with pytest.raises(ConfigError, match=message):
        overlay(tmp_path, f'name = "X"\nvendor = "nvidia"\n{text}\n')
