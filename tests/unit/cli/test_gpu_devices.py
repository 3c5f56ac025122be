"""`gpu detect` and `gpu show`: on devices whose libraries are replaced at the import boundary."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner.cli import main
from runner.cli.app import ExitCode
from tests.fakes.nvml import Nvml
from tests.fakes.recordings import nvidia
from tests.unit.cli.gpu_host import GpuHost, manual

H100 = nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0))
RTX5090 = nvidia("NVIDIA GeForce RTX 5090", 0x2B85, 31, (12, 0), number=1)


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


@pytest.mark.parametrize(
    ("fails", "mark", "says"),
    [
        ("LibraryNotFound", "✓", "devices: none here; this host serves processor cores"),
        ("LibRmVersionMismatch", "✗", "devices: nvidia devices cannot be listed: NVMLError_LibRmVersionMismatch"),
    ],
)
def test_check_has_one_line_for_the_devices(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, fails: str, mark: str, says: str
) -> None:
    """No driver is a normal host, a broken one is a failure with what to do; neither hides the other lines."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(lambda: host.devices, fails=fails))
    # It would come before the configuration's.
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    main(["--config", str(host.config), "check"])
    lines = host.capsys.readouterr().out.splitlines()
    (number,) = [number for number, line in enumerate(lines) if " devices: " in line]
    assert lines[number].startswith(f"{mark} {says}")
    if fails == "LibRmVersionMismatch":
        assert "see what the driver says" in lines[number + 1]
    assert any(line.startswith("✗ engine: ") for line in lines)
    assert any(line.startswith("✗ database: ") for line in lines)
