"""`gpu detect`, `gpu add` and `gpu list --here`: on devices whose libraries are replaced at the import boundary."""

from __future__ import annotations

import io
import json
import sys
import tomllib
from pathlib import Path

import pytest

from runner.cli import main
from runner.cli.app import ExitCode
from runner.gpu_types import Registry
from tests.fakes.amd import AmdSmi
from tests.fakes.nvml import Nvml
from tests.fakes.recordings import AMD, lost, nvidia
from tests.unit.cli.gpu_host import GpuHost, manual

H100 = nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0))
RTX5090 = nvidia("NVIDIA GeForce RTX 5090", 0x2B85, 31, (12, 0), number=1)
#: What `gpu add` makes of the manual's example.
ADDED = """\
name = "RTX5090"
device_names = ["NVIDIA GeForce RTX 5090"]
vendor = "nvidia"
memory_gib = 32.0
pids = 2048
scratch_mib = 4096
nvcc_arch = "120a"

[device]
memory_gib = 31
l2_mib = 96.0
bandwidth_gb_s = 1792.0
peak_tflops = { fp16 = 419.0 }
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


def test_detect_as_json_has_all_that_is_known(host: GpuHost) -> None:
    """Settings, state, types with the reason for each, and what went wrong."""
    host.devices = [H100, lost(RTX5090)]
    code, text, _ = host.gpu("detect", "--json")
    said = json.loads(text)
    assert code == ExitCode.NOT_ACCEPTED
    (only,) = said["devices"]
    assert only["details"]["architecture"] == "9.0"
    assert only["reading"]["temperature_c"] == 31
    assert only["types"] == [
        {"name": name, "detect": True, "count": count, "why": "its name matches 'NVIDIA H100( .*)?'"}
        for name, count in (("H100", 1), ("H100x8", 8))
    ]
    assert said["problems"] == ["nvidia device 1 cannot be used: NVMLError_GpuIsLost: GpuIsLost"]


def test_a_type_is_added_from_a_device(host: GpuHost) -> None:
    """What a dry run prints is what is then written; the device is of that type from then on."""
    arguments = ["add", "RTX5090", "--device", "1", "--bandwidth", "1792", "--l2", "96", "--peak", "fp16=419"]
    assert host.gpu(*arguments, "--dry-run") == (ExitCode.OK, ADDED, "")
    assert not host.types.exists()
    code, out, err = host.gpu(*arguments)
    assert code == ExitCode.OK
    assert f"{host.types / 'RTX5090.toml'} is written" in err
    assert "device.sources: found nothing for l2_mib" in out
    assert (host.types / "RTX5090.toml").read_text() == ADDED
    assert list(host.types.iterdir()) == [host.types / "RTX5090.toml"]
    assert "is RTX5090: its name matches" in host.gpu("detect")[1]
    listed = json.loads(host.gpu("list", "--here", "--json")[1])
    assert {entry["name"]: entry["file"] for entry in listed}["RTX5090"] == str(host.types / "RTX5090.toml")
    assert "RTX5090" in host.gpu("list", "--here")[1]


def test_nothing_is_overwritten_unasked(host: GpuHost) -> None:
    """A second file of the name needs --force."""
    assert host.gpu("add", "MINE", "--device", "1")[0] == ExitCode.OK
    before = (host.types / "MINE.toml").read_text()
    code, _, err = host.gpu("add", "MINE", "--device", "1", "--count", "2")
    assert (code, (host.types / "MINE.toml").read_text()) == (ExitCode.USAGE, before)
    assert "MINE.toml exists and was not changed; --force replaces it" in err
    assert host.gpu("add", "MINE", "--device", "1", "--count", "2", "--force")[0] == ExitCode.OK
    assert Registry.load(host.types).get("MINE").count == 2


def test_a_type_is_added_from_another(host: GpuHost) -> None:
    """Its devices are that type's, so it must not be detected; with a device, it has that one's name."""
    code, _, err = host.gpu("add", "H100_B", "--extends", "H100")
    assert code == ExitCode.USAGE
    assert "device 'NVIDIA H100 80GB HBM3' would be of GPU types H100, H100_B; expected one: add --no-detect" in err
    assert host.gpu("add", "H100_B", "--extends", "H100", "--no-detect", "--alias", "OURS")[0] == ExitCode.OK
    added = Registry.load(host.types).get("OURS")
    assert (added.detect, added.nvcc_arch) == (False, "90a")
    assert host.gpu("add", "BIG", "--extends", "H100", "--device", RTX5090["nvmlDeviceGetUUID"])[0] == ExitCode.OK
    keys = tomllib.loads((host.types / "BIG.toml").read_text())
    assert keys["device_names"] == ["NVIDIA GeForce RTX 5090"]
    assert "vendor" not in keys


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["X"], "found neither --device nor --extends"),
        (["X", "--device", "7"], "no device '7' on this host, found: 0 = GPU-0f00a1b2"),
        (["X", "--extends", "H10"], "extends='H10', expected the name of another GPU type; the nearest is"),
        (["a/b", "--device", "1"], "name: found 'a/b'"),
        (["X", "--device", "1", "--count", "0"], "kernel-runner: X.toml: "),
        (["X", "--device", "1", "--alias", "a b"], "kernel-runner: X.toml: "),
        (["X", "--device", "1", "--peak", "fp16"], "--peak: found 'fp16', expected a data type and a rate"),
        (["X", "--device", "1", "--peak", "fp9=1"], "--peak: found 'fp9=1', expected a data type and a rate"),
        (["X", "--device", "1", "--peak", "fp 16=3"], "--peak: found 'fp 16=3'"),
        (["X", "--device", "1", "--peak", "fp16=inf"], "a rate is a number above 0"),
        (["X", "--device", "1", "--bandwidth", "nan"], "--bandwidth: found nan, expected a number above 0"),
        (["X", "--device", "1", "--bandwidth", "-5"], "--bandwidth: found -5, expected a number above 0"),
        (["X", "--device", "1", "--bandwidth", "1.8e12"], "--bandwidth: found 1.8e+12, expected a number above 0"),
        (["X", "--device", "1", "--l2", "0"], "--l2: found 0, expected a number above 0"),
    ],
)
def test_what_is_wrong_is_not_written(host: GpuHost, arguments: list[str], message: str) -> None:
    """The message says what was found and what is expected, and the directory stays as it was."""
    code, out, err = host.gpu("add", *arguments)
    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err
    assert not host.types.exists()


def test_a_file_is_no_directory_of_types(host: GpuHost) -> None:
    """Nothing of the name exists there, and --force would not help."""
    host.types.touch()
    for arguments in (["add", "MINE", "--device", "1"], ["validate"]):
        code, _, err = host.gpu(*arguments)
        assert code == ExitCode.USAGE
        assert f"{host.types} is no directory (gpus_dir)" in err


def test_a_device_without_a_name_is_known_by_its_number(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """AMD's generic name is many devices', so the type has the PCI id, and the gfx target for compilers."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    nameless = {**AMD["MI300X without a name"][1]}
    nameless["amdsmi_get_gpu_asic_info"] = {**nameless["amdsmi_get_gpu_asic_info"], "device_id": 0x7550}
    monkeypatch.setitem(sys.modules, "amdsmi", AmdSmi(lambda: [nameless]))
    code, _, err = host.gpu("add", "RX", "--device", "0")
    assert (code, "'0' is several devices: GPU-0f00a1b2" in err) == (ExitCode.USAGE, True)
    host.devices = []
    assert host.gpu("add", "RX", "--device", "0")[0] == ExitCode.OK
    added = Registry.load(host.types).get("RX")
    assert (added.device_names, added.pci_ids) == ((), ("1002:7550",))
    assert added.environment == {"PYTORCH_ROCM_ARCH": "gfx942"}
    assert "is RX: its PCI id is 1002:7550" in host.gpu("detect")[1]


class Typed(io.StringIO):
    """What is typed at the prompt."""

    def isatty(self) -> bool:
        """Say that it is a terminal."""
        return True


def typing(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Let `gpu add` find a terminal, and these lines typed there."""
    monkeypatch.setattr(sys, "stdin", Typed("".join(f"{answer}\n" for answer in answers)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_add_asks_on_a_terminal(host: GpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what is here, asks again for what makes no sense, and writes the file after a look at it."""
    typing(
        monkeypatch,
        *(
            "7",
            "1",
            "none",
            "two words",
            "RTX5090",
            "A desktop card",
            "",
            "zero",
            "1",
            "",
            "1792",
            "96",
            "fp16",
            "fp16=419",
        ),
        *("y", "y"),
    )
    code, out, err = host.gpu("add")
    assert code == ExitCode.OK, err
    assert "0 = 'NVIDIA H100 80GB HBM3': H100" in err
    assert "1 = 'NVIDIA GeForce RTX 5090': no GPU type yet" in err
    for said in ("no device '7'", "name is 'two words'", "found 'zero', expected a whole number", "found 'fp16'"):
        assert said in err
    written = tomllib.loads((host.types / "RTX5090.toml").read_text())
    assert 'name = "RTX5090"' in out
    assert (written["description"], written["count"], written["device_names"]) == (
        "A desktop card",
        1,
        ["NVIDIA GeForce RTX 5090"],
    )
    assert (written["device"]["bandwidth_gb_s"], written["device"]["peak_tflops"]) == (1792.0, {"fp16": 419.0})
    assert Registry.load(host.types).get("RTX5090").device.l2_mib == 96


def test_add_asks_once_more_where_the_answers_make_no_type(host: GpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device would be of two types: earlier answers stand as they were, and `no` at the end writes nothing."""
    first = ("H100", "H100_SITE", "", "", "", "", "", "", "", "y")
    again = ("", "", "", "", "", "", "", "", "", "n", "n")
    typing(monkeypatch, *first, *again)
    code, out, err = host.gpu("add")
    assert code == ExitCode.OK, err
    assert "would be of GPU types H100, H100_SITE" in err
    assert "once more" in err
    assert out.splitlines()[:2] == ['extends = "H100"', 'name = "H100_SITE"']
    assert not host.types.exists()


def test_add_without_a_terminal_says_what_it_lacks(host: GpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal there is no question."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "found no NAME" in host.gpu("add")[2]
    code, _, err = host.gpu("add", "X")
    assert (code, "found neither --device nor --extends" in err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize(
    ("fails", "mark", "says"),
    [
        ("LibraryNotFound", "✓", "devices: none here; this host serves processor cores"),
        ("LibRmVersionMismatch", "✗", "devices: nvidia devices cannot be listed: NVMLError_LibRmVersionMismatch"),
        (None, "✓", "devices: nvidia 0 'NVIDIA H100 80GB HBM3', nvidia 1 'NVIDIA GeForce RTX 5090'"),
    ],
)
def test_check_has_one_line_for_the_devices(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, fails: str | None, mark: str, says: str
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
