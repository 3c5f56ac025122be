"""Makes a bare machine one that can hold a GPU host: programs, control groups, libraries of the driver. Stdlib only.

Changes the machine: unpacks to `HOME`, mounts control groups where nothing is mounted, and adds the driver's folder to
the linker's cache where that lacks it. As root.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
#: What `make gpu-host` makes.
ARCHIVE: Final = ROOT / "build" / "gpu-host" / "host.tar.xz"
#: Where it is unpacked.
HOME: Final = Path("/opt/kernel-runner-host")
SITE: Final = HOME / "site"
#: Of KernelBot, where it was packed.
KERNELBOT: Final = HOME / "kernelbot"
_CGROUPS: Final = Path("/sys/fs/cgroup")
_CONTROLLERS: Final = ("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids")
#: Where a driver's library may lie that the linker does not know of.
_DRIVER_FOLDERS: Final = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu/nvidia")
_DRIVER: Final = "libcuda.so.1"


def prepare(archive: Path) -> list[str]:
    """Make everything ready; a sentence for each change.

    Raises:
        OSError: something cannot be made.
        subprocess.CalledProcessError: a command failed.
    """
    sentences = []
    if not (HOME / "complete").exists():
        HOME.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            packed.extractall(HOME, filter="tar")
        (HOME / "complete").touch()
        sentences.append(f"unpacked {archive.stat().st_size / 1e6:.0f} MB to {HOME}")
    _wrap_engine()
    os.environ["PATH"] = (
        f"{HOME / 'programs'}:{HOME / 'engine'}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
    )
    sentences += [*_control_groups(), *_driver_library()]
    # For this process and all that it starts.
    os.environ["PYTHONPATH"] = str(SITE)
    sys.path.insert(0, str(SITE))
    return sentences


def _wrap_engine() -> None:
    """Dockerd and runc find the libraries that they were linked with; no other program gets them."""
    folder = HOME / "programs"
    folder.mkdir(exist_ok=True)
    for program in ("dockerd", "runc"):
        path = folder / program
        path.write_text(
            f'#!/bin/sh\nLD_LIBRARY_PATH={HOME / "lib"} exec {HOME / "engine" / program} "$@"\n', encoding="utf-8"
        )
        path.chmod(0o755)


def _control_groups() -> list[str]:
    """Mount them where nothing is mounted, in the version that the kernel uses: an engine needs them."""
    if any(_CGROUPS.iterdir()):
        return []
    rows = [line.split() for line in Path("/proc/cgroups").read_text(encoding="ascii").splitlines()[1:]]
    # Number 0: not used by version 1.
    if all(number == "0" for name, number, *_ in rows if name in _CONTROLLERS):
        _run("mount", "-t", "cgroup2", "cgroup2", str(_CGROUPS))
        return ["mounted control groups, version 2"]
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "cgroup", str(_CGROUPS))
    for name in _CONTROLLERS:
        (_CGROUPS / name).mkdir()
        _run("mount", "-t", "cgroup", "-o", name, "cgroup", str(_CGROUPS / name))
    return [f"mounted control groups, version 1, {len(_CONTROLLERS)} controllers"]


def _driver_library() -> list[str]:
    """Containers find libraries by the linker's cache alone."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    folder = next((folder for folder in _DRIVER_FOLDERS if Path(folder, _DRIVER).exists()), None)
    if _DRIVER in listed or folder is None:
        return []
    Path("/etc/ld.so.conf.d/kernel-runner.conf").write_text(f"{folder}\n", encoding="utf-8")
    _run("ldconfig")
    return [f"added {folder} to the linker's cache"]


def facts() -> dict[str, str]:
    """What this machine is, for the record."""
    commands: dict[str, Sequence[str]] = {
        "device": ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        "driver": ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "software": (sys.executable, "-c", "import torch; print(f'torch {torch.__version__}')"),
        "kernel": ("uname", "-r"),
        "programs": ("sh", "-c", "command -v nvcc ncu"),
        "nodes": ("sh", "-c", "ls -l /dev/nvidia*"),
        "root": ("findmnt", "-no", "FSTYPE,OPTIONS", "/"),
        "cgroups": ("findmnt", "-rno", "TARGET,FSTYPE", "-t", "cgroup,cgroup2"),
    }
    known = {"date": datetime.now(UTC).date().isoformat(), "python": sys.version.split()[0]}
    return known | {name: _said(command) for name, command in commands.items()}


def _said(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}"
    return "; ".join(done.stdout.split("\n")[:12]).strip("; ")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
