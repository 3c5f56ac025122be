"""`gpu validate`: files of GPU types before and after they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli import main
from runner.cli.app import ExitCode

GOOD = """
name = "X"
vendor = "nvidia"
device_names = ['X']
[device]
memory_gib = 32
l2_mib = 96
bandwidth_gb_s = 1792
peak_tflops = { fp8 = 838, fp16 = 419 }
[device.sources]
memory_gib = "a"
l2_mib = "b"
bandwidth_gb_s = "c"
peak_tflops = "d"
"""
#: What it says of a file that lacks a cache and sources and states rates with sparsity.
ADVICE = """\
✓ RTX5090: nvidia, 32 GiB, 1792 GB/s, fp8 838, fp16 209.5 (RTX5090.toml)
! RTX5090: device.l2_mib: found nothing, so that no time is too short for the memory's bandwidth
    enter the size of the L2 cache, and as l3_mib that of a cache beyond it
! RTX5090: device.peak_tflops: found fp8 838 and fp16 209.5, expected fp8 to be once to twice fp16
    enter rates without sparsity; data sheets often state the double
! RTX5090: device.sources: found nothing for memory_gib, bandwidth_gb_s, whose origin is unknown
    enter the documents
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose directory of GPU types is empty."""
    (tmp_path / "gpus.d").mkdir()
    path = tmp_path / "config.toml"
    path.write_text(f'gpus_dir = "{tmp_path / "gpus.d"}"\n')
    return path


def validate(config: Path, *arguments: object) -> int:
    """Run the command; its exit code."""
    return main(["--config", str(config), "gpu", "validate", *map(str, arguments)])


def test_a_good_file_is_good_before_it_is_installed_and_after(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its figures are shown in a line; without a file, the installed ones are meant."""
    path = tmp_path / "X.toml"
    path.write_text(GOOD)
    assert validate(config, path) == ExitCode.OK
    assert capsys.readouterr().out == f"✓ X: nvidia, 32 GiB, 1792 GB/s, fp8 838, fp16 419 ({path})\n"
    assert validate(config) == ExitCode.OK
    assert capsys.readouterr().out == f"✓ gpu types: the built-in ones; no files in {tmp_path / 'gpus.d'}\n"
    path.rename(tmp_path / "gpus.d" / "X.toml")
    assert validate(config) == ExitCode.OK
    assert f"({tmp_path / 'gpus.d' / 'X.toml'})" in capsys.readouterr().out


def test_a_mistake_is_an_error_that_says_where(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """File, key, found and expected; nothing on stdout."""
    path = tmp_path / "X.toml"
    path.write_text(GOOD.replace("fp8 =", "fp9 ="))
    assert validate(config, path) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{path}: device.peak_tflops.fp9" in said.err
    assert "found 'fp9', expected" in said.err
    assert validate(config, tmp_path / "none.toml") == ExitCode.USAGE
    assert "none.toml: cannot be read: No such file" in capsys.readouterr().err


def test_what_a_file_lacks_is_a_warning_with_its_remedy(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for the type, then a warning and a remedy for each thing that is missing or implausible."""
    text = GOOD.replace("X", "RTX5090").replace("l2_mib = 96\n", "").replace("419", "209.5")
    for line in ('memory_gib = "a"\n', 'l2_mib = "b"\n', 'bandwidth_gb_s = "c"\n'):
        text = text.replace(line, "")
    (tmp_path / "RTX5090.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert validate(config, "RTX5090.toml") == ExitCode.OK
    assert capsys.readouterr().out == ADVICE
