"""Packs what a GPU host needs beside this tree into one file, for a machine without a network.

    python -m tests.gpu.host.pack [--python 3.12] [--kernelbot CHECKOUT --problem FOLDER] [--max-mb 55]

build/gpu-host/host.tar.xz gets this host's container engine with its libraries, and the packages of the daemon and
the embedded PostgreSQL for that machine's Python. `python3 -m tests.gpu.host` unpacks it there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runner.task_format import load, to_stored
from tests.gpu.host.machine import ARCHIVE, ROOT

#: Of the engine. `docker-proxy` is only looked for: containers have no network.
PROGRAMS: Final = ("dockerd", "containerd", "containerd-shim-runc-v2", "runc", "docker-proxy")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/usr/libexec/docker"
#: Every machine has these, in a version of its own.
_GLIBC: Final = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv)\.so")
#: Older ones first: a wheel is tagged with the oldest glibc that it works with.
_PLATFORMS: Final = (
    "manylinux1",
    "manylinux2010",
    "manylinux2014",
    "manylinux_2_17",
    "manylinux_2_27",
    "manylinux_2_28",
)
#: Says where processes of containers stand that do not go on.
_DIAGNOSIS: Final = ("py-spy>=0.4",)
#: The attacks that the plan shares with `tests.gpu` are in tests.
_TESTS: Final = ("pytest>=8.4",)
#: What only a running test needs, of the packages.
_LEFT_OUT: Final = ("__pycache__", "bin", "tests", "include", "*.h", "*.a", "*.pyi", "locale")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.host.pack", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--python", default="3.12", help="version of that machine's Python (%(default)s)")
    parser.add_argument("--kernelbot", type=Path, help="a checkout of KernelBot, whose evaluation is timed beside ours")
    parser.add_argument("--problem", type=Path, help="a task folder with a program of its own, for that comparison")
    parser.add_argument("--max-mb", type=float, default=55.0, help="megabytes that the file may have (%(default)g)")
    parser.add_argument("--level", type=int, default=9, help="of xz; 9 takes minutes, 1 seconds (%(default)s)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kernel-runner-pack-") as name:
        folder = Path(name)
        pack_engine(folder)
        pack_packages(folder / "site", python=given.python)
        if given.kernelbot is not None:
            shutil.copytree(
                given.kernelbot / "src" / "libkernelbot",
                folder / "kernelbot" / "libkernelbot",
                ignore=shutil.ignore_patterns("__pycache__", "*.sql"),
            )
        if given.problem is not None:
            stored = json.dumps(to_stored(load(given.problem).task))
            (folder / "problem.json").write_text(stored, encoding="utf-8")
        ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
        compress = [
            "tar",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "-I",
            f"xz -{given.level} -T0",
            "-cf",
            str(ARCHIVE),
            "-C",
            name,
            ".",
        ]
        subprocess.run(compress, check=True)
    megabytes = ARCHIVE.stat().st_size / 1e6
    print(f"{ARCHIVE}: {megabytes:.1f} MB for Python {given.python}")  # noqa: T201 a command line speaks
    if megabytes > given.max_mb:
        print(f"{ARCHIVE} has {megabytes:.1f} MB, expected at most {given.max_mb:g} (--max-mb)", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def pack_engine(folder: Path) -> None:
    """The engine's programs, and the libraries that they are linked to, but for glibc.

    Raises:
        SystemExit: this host lacks a program.
    """
    (folder / "engine").mkdir()
    (folder / "lib").mkdir()
    for program in PROGRAMS:
        path = shutil.which(program, path=_PATH)
        if path is None:
            raise SystemExit(f"{program} is not installed here (apt-get install docker.io)")
        shutil.copy2(path, folder / "engine" / program)
        linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"=> (/\S+)", linked):
            if not _GLIBC.match(Path(library).name):
                shutil.copy2(library, folder / "lib" / Path(library).name)


def pack_packages(folder: Path, *, python: str) -> None:
    """Our dependencies as `pip install --target` lays them out.

    Raises:
        SystemExit: pip failed.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["nvidia"], *extras["demo"], *_DIAGNOSIS, *_TESTS]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "--no-compile"),
            *("--only-binary=:all:", "--implementation", "cp", "--python-version", python),
            *(part for name in _PLATFORMS for part in ("--platform", f"{name}_x86_64")),
            *wanted,
        ],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"pip could not get packages for Python {python}; see above")
    for pattern in _LEFT_OUT:
        for path in folder.rglob(pattern):
            # PostgreSQL's own programs, and py-spy, are in folders of that name.
            if path.name == "bin" and ("pgserver" in str(path) or (path / "py-spy").exists()):
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    sys.exit(main())
