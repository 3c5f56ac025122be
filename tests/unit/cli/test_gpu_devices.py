"""`gpu detect` and `gpu show`: on devices whose libraries are replaced at the import boundary."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from runner.base.gpu_types import Registry
from runner.cli import main
from runner.cli.app import ExitCode
from tests.fakes.amd import AmdSmi
from tests.fakes.nvml import Nvml
from tests.fakes.recordings import AMD, nvidia
from tests.unit.cli.gpu_host import GpuHost, manual

H100 = nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0))
RTX5090 = nvidia("NVIDIA GeForce RTX 5090", 0x2B85, 31, (12, 0), number=1)
#: What is written for the manual's example.
ADDED = """\
name = "RTX5090"
device_names = ["NVIDIA GeForce RTX 5090"]
vendor = "nvidia"
memory_gib = 32.0
pids = 2048
scratch_mib = 4096
sample_every_s = 0.1
nvcc_arch = "120a"

[device]
memory_gib = 31
sources = { memory_gib = "the driver" }
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> GpuHost:
    """With a known device and an unknown one."""
    return GpuHost(tmp_path, monkeypatch, capsys, [H100, RTX5090])


def test_detect_says_what_is_here_and_why(host: GpuHost) -> None:
    """As the manual shows it; a device without type makes it fail."""
    assert host.gpu("detect") == (ExitCode.NOT_ACCEPTED, manual("kernel-runner gpu detect"), "")
    host.devices = [H100]
    assert host.gpu("detect")[0] == ExitCode.OK
    host.devices = []
    assert host.gpu("detect")[:2] == (ExitCode.OK, "✓ devices: none here; this host serves processor cores\n")


def test_a_type_is_written_for_a_device(host: GpuHost) -> None:
    """What the driver knows, and what is missing; the device is of that type from then on. Nothing is overwritten."""
    code, out, err = host.gpu("detect", "--write", "RTX5090", "--device", "1")
    assert code == ExitCode.OK, err
    assert f"{host.types / 'RTX5090.toml'} is written" in err
    assert "device.bandwidth_gb_s: found nothing" in out
    assert (host.types / "RTX5090.toml").read_text() == ADDED
    assert "is RTX5090: its name matches" in host.gpu("detect")[1]
    listed = json.loads(host.gpu("show")[1])
    assert {entry["name"]: entry["file"] for entry in listed}["RTX5090"] == str(host.types / "RTX5090.toml")
    (host.types / "RTX5090.toml").write_text(ADDED.replace('["NVIDIA GeForce RTX 5090"]', '["another"]'))
    code, _, err = host.gpu("detect", "--write", "RTX5090", "--device", "1")
    assert (code, "RTX5090 is GPU type RTX5090 of" in err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--write", "X"], "found one of --write and --device, expected both or neither"),
        (["--device", "1"], "found one of --write and --device, expected both or neither"),
        (["--write", "X", "--device", "7"], "no device '7' on this host, found: 0 = GPU-0f00a1b2"),
        (["--write", "a/b", "--device", "1"], "--write: found 'a/b', expected a letter or digit, then"),
        (["--write", ".X", "--device", "1"], "--write: found '.X', expected a letter or digit, then"),
        (["--write", "X", "--device", "0"], "'NVIDIA H100 80GB HBM3' is H100 already"),
        (["--write", "MI300X", "--device", "1"], "--write: MI300X is GPU type MI300 of "),
        (["--write", "h100", "--device", "1"], "h100"),
    ],
)
def test_what_is_wrong_is_not_written(host: GpuHost, arguments: list[str], message: str) -> None:
    """The message says what was found and what is expected, and no file is left."""
    code, out, err = host.gpu("detect", *arguments)
    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err
    assert not host.types.exists() or list(host.types.iterdir()) == []


def test_a_device_without_a_name_is_known_by_its_number(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """AMD's generic name is many devices', so the type has the PCI id, and the gfx target for compilers."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    nameless = {**AMD["MI300X without a name"][1]}
    nameless["amdsmi_get_gpu_asic_info"] = {**nameless["amdsmi_get_gpu_asic_info"], "device_id": 0x7550}
    monkeypatch.setitem(sys.modules, "amdsmi", AmdSmi(lambda: [nameless]))
    code, _, err = host.gpu("detect", "--write", "RX", "--device", "0")
    assert (code, "'0' is several devices: GPU-0f00a1b2" in err) == (ExitCode.USAGE, True)
    host.devices = []
    assert host.gpu("detect", "--write", "RX", "--device", "0")[0] == ExitCode.OK
    added = Registry.load(host.types).get("RX")
    assert (added.device_names, added.pci_ids) == ((), ("1002:7550",))
    assert added.environment == {"PYTORCH_ROCM_ARCH": "gfx942"}
    assert "is RX: its PCI id is 1002:7550" in host.gpu("detect")[1]


@pytest.mark.parametrize(
    ("fails", "line"),
    [
        ("LibraryNotFound", "✓ devices: none here; this host serves processor cores"),
        ("LibRmVersionMismatch", "✗ devices: nvidia devices cannot be listed: NVMLError_LibRmVersionMismatch"),
    ],
)
def test_check_has_one_line_for_the_devices(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, fails: str, line: str
) -> None:
    """No driver is a normal host, a broken one is a failure with what to do; neither hides the other lines."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(lambda: host.devices, fails=fails))
    # It would come before the configuration's.
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    main(["--config", str(host.config), "check"])
    lines = host.capsys.readouterr().out.splitlines()
    (number,) = [number for number, each in enumerate(lines) if " devices: " in each]
    assert lines[number].startswith(line)
    assert ("see what the driver says" in lines[number + 1]) is line.startswith("✗")
    for other in ("✗ engine: ", "✗ database: "):
        assert any(each.startswith(other) for each in lines)
