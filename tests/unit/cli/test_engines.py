"""What `check` says of engines, runtimes and versions: one line each, with what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.gpu_types import Vendor
from runner.base.model import Device
from runner.cli import engines
from runner.cli.finding import Mark
from sandbox.host.engine import EngineFacts
from tests.unit import samples


def test_a_runtime_that_a_slot_needs_must_be_there() -> None:
    """What is missing is said with how to install it."""
    names = ("version", "api_version", "cgroup_version", "cgroup_driver", "storage_driver")
    texts: Any = dict.fromkeys(names, "")
    given = EngineFacts(**texts, runtimes=("kata", "runc"), rootless=False, cdi={}, components={})
    there, missing = engines.runtimes(given, {"runc": ["CPU"], "runsc": ["H100", "L4"]})
    assert (there.mark, missing.mark) == (Mark.OK, Mark.FAILED)
    assert missing.fact == "the engine does not offer it, and H100, L4 asks for it"
    assert missing.remedy is not None
    assert '"runtimeArgs": ["--network=none"]}}}' in missing.remedy


def test_the_container_toolkit_is_asked_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old one is a warning with its advisories; a host without it has no line."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engines.toolkit_version() == {}
    program = tmp_path / "nvidia-ctk"
    for version, mark, fact in (
        ("1.17.7", Mark.WARNING, "is older than 1.17.8 (CVE-2024-0132"),
        ("1.17.8", Mark.OK, ""),
        ("1.20.0", Mark.WARNING, "writes to /etc/nvidia"),
    ):
        program.write_text(f"#!/bin/sh\necho 'NVIDIA Container Toolkit CLI version {version}'\necho 'commit: 1'\n")
        program.chmod(0o755)
        (finding,) = engines.versions(engines.toolkit_version())
        assert (finding.name, finding.mark) == ("nvidia-container-toolkit", mark)
        assert fact in finding.fact
        assert (finding.remedy is not None) is (mark is Mark.WARNING)
    program.write_text("#!/bin/sh\nexit 1\n")
    assert engines.toolkit_version() == {}


_H100 = Device(
    uuid="GPU-1", name="H100", vendor="nvidia", index=0, nodes=("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
)
_MI300 = Device(uuid="u", name="MI300X", vendor="amd", index=2, nodes=("/dev/kfd", "/dev/dri/renderD130"))


@pytest.mark.parametrize(
    ("image", "device", "mark", "found"),
    [
        ("cuda", _H100, Mark.OK, "by CDI: nvidia.com/gpu=0"),
        ("cuda", replace(_H100, nodes=("/dev/nvidia1",)), Mark.OK, "through NVIDIA's runtime"),
        ("host", _H100, Mark.OK, "by device node"),
        ("host", replace(_H100, nodes=_H100.nodes[:2]), Mark.FAILED, "nvidia 0 has no nvidia-uvm"),
        ("host", _MI300, Mark.OK, "by device node"),
        ("rocm", replace(_MI300, nodes=("/dev/kfd",)), Mark.FAILED, "amd 2 has no renderD"),
    ],
)
def test_how_containers_get_their_devices_is_said(image: str, device: Device, mark: Mark, found: str) -> None:
    """/dev/nvidia-uvm is missing after a boot until a program of root's asks for it: then CUDA fails by node."""
    vendor = Vendor(device.vendor)
    gpu = replace(samples.H100 if vendor is Vendor.NVIDIA else samples.MI300, image=image)
    slots = [replace(samples.SLOT, devices=(device,))]
    (finding,) = engines.device_access(gpu, slots, {"nvidia.com/gpu=0": ("/dev/nvidia0",)})
    assert (finding.name, finding.mark) == (f"devices of {gpu.name}", mark)
    assert found in finding.fact
    assert (finding.remedy is not None) == (mark is Mark.FAILED or "runtime" in found)
    assert list(engines.device_access(samples.CPU, [samples.SLOT], {})) == []
