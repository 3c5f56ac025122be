"""`gpu validate`: files of GPU types before and after they are installed."""

from __future__ import annotations

from collections.abc import Callable
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


Validate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Validate:
    """Runs the command where the directory of GPU types is empty: exit code, stdout, stderr."""
    (tmp_path / "gpus.d").mkdir()
    config = tmp_path / "config.toml"
    config.write_text(f'gpus_dir = "{tmp_path / "gpus.d"}"\n')
    monkeypatch.chdir(tmp_path)

    def run(*files: str) -> tuple[int, str, str]:
        code = main(["--config", str(config), "gpu", "validate", *files])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_good_file_is_good_before_it_is_installed_and_after(validate: Validate, tmp_path: Path) -> None:
    """Its figures are shown in a line; without a file, the installed ones are meant."""
    (tmp_path / "X.toml").write_text(GOOD)
    figures = "✓ X: nvidia, 32 GiB, 1792 GB/s, fp8 838, fp16 419"
    assert validate("X.toml") == (ExitCode.OK, f"{figures} (X.toml)\n", "")
    assert validate() == (ExitCode.OK, f"✓ gpu types: the built-in ones; no files in {tmp_path / 'gpus.d'}\n", "")
    (tmp_path / "X.toml").rename(tmp_path / "gpus.d" / "X.toml")
    assert validate() == (ExitCode.OK, f"{figures} ({tmp_path / 'gpus.d' / 'X.toml'})\n", "")


def test_what_is_wrong_or_lacks_is_said(validate: Validate, tmp_path: Path) -> None:
    """A mistake is an error with file, key, found and expected, and nothing on stdout.

    What is missing or implausible is a warning with its remedy, behind the line for the type.
    """
    (tmp_path / "X.toml").write_text(GOOD.replace("fp8 =", "fp9 ="))
    code, out, err = validate("X.toml")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "X.toml: device.peak_tflops.fp9" in err
    assert "found 'fp9', expected" in err
    code, _, err = validate("none.toml")
    assert (code, "none.toml: cannot be read: No such file" in err) == (ExitCode.USAGE, True)
    text = GOOD.replace("X", "RTX5090").replace("l2_mib = 96\n", "").replace("419", "209.5")
    for line in ('memory_gib = "a"\n', 'l2_mib = "b"\n', 'bandwidth_gb_s = "c"\n'):
        text = text.replace(line, "")
    (tmp_path / "RTX5090.toml").write_text(text)
    assert validate("RTX5090.toml") == (ExitCode.OK, ADVICE, "")
