"""The command line of a host whose devices NVML alone knows, and what the manual shows of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner.cli import main
from runner.devices import sysfs
from tests.fakes.nvml import Nvml
from tests.fakes.recordings import Answers

MANUAL = Path(__file__).resolve().parents[3] / "docs" / "cli.md"


class GpuHost:
    """A host's command line, the directory of its GPU types, and its devices."""

    def __init__(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        devices: list[Answers],
    ) -> None:
        self.types = tmp_path / "gpus.d"
        self.config = tmp_path / "config.toml"
        self.config.write_text(f'gpus_dir = "{self.types}"\n')
        self.devices = devices
        self.nvml = Nvml(lambda: self.devices)
        self.capsys = capsys
        monkeypatch.setattr(sysfs, "SYSFS", tmp_path / "sys")
        monkeypatch.setattr(sysfs, "DEV", tmp_path / "dev")
        monkeypatch.setitem(sys.modules, "pynvml", self.nvml)

    def gpu(self, *arguments: str) -> tuple[int, str, str]:
        """Run `kernel-runner gpu`: exit code, stdout, stderr."""
        code = main(["--config", str(self.config), "gpu", *arguments])
        said = self.capsys.readouterr()
        return code, said.out, said.err


def manual(command: str) -> str:
    """What the manual shows of a command, up to the next command or to where its text goes on."""
    (_, shown) = MANUAL.read_text(encoding="utf-8").split(f"    $ {command}\n")
    lines = []
    for line in shown.splitlines():
        if (line and not line.startswith("    ")) or line.startswith("    $"):
            break
        lines.append(line[4:])
    return "\n".join(lines).rstrip() + "\n"
