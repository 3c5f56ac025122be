"""A Debian made on this machine, for tests of images and of the service: no registry is asked.

It comes from the package archive and is kept for the next time in a folder of its own below /var/tmp.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sandbox.host.engine import DockerEngine

CACHE: Final = Path("/var/tmp/kernel-runner-test-images")
SUITE: Final = "bookworm"
#: What that release calls `python3`.
PYTHON: Final = "3.11"
#: A base for images, with compiler and Python; and a host to install on, with systemd, an engine and a PostgreSQL of
#: its own. One for both: making it takes a minute.
DEBIAN: Final = f"kernel-runner-test/debian:{SUITE}"
_MIRROR: Final = "http://deb.debian.org/debian"
_PACKAGES: Final = (
    "ca-certificates,build-essential,python3,python3-dev,python3-venv,systemd,systemd-sysv,dbus,docker.io,postgresql"
)
#: Not part of an image: what was downloaded, and nodes that only root may make.
_LEFT_OUT: Final = (
    "./var/cache/apt/archives",
    "./var/lib/apt/lists",
    "./dev",
    "./proc",
    "./sys",
    "./usr/share/doc",
    "./usr/share/locale",
    "./usr/share/man",
)
_MINUTES: Final = 60


@pytest.fixture(scope="session")
def debian_image(docker_engine: DockerEngine) -> str:
    """The name of a Debian on the engine."""
    archive = CACHE / f"debian-{SUITE}.tar"
    if os.getuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("a base image is made with debootstrap, as root: apt-get install debootstrap (.ci/setup does)")
    with _locked():
        if not archive.exists():
            _bootstrap(archive)
        if not docker_engine._call("images", lambda api: api.images(name=DEBIAN)):
            name, tag = DEBIAN.split(":")
            # Not import_image_from_file: that one waits without bound.
            with archive.open("rb") as source:
                docker_engine._call("import", lambda api: api.import_image(source, repository=name, tag=tag))
    return DEBIAN


@pytest.fixture(scope="session")
def wheels() -> Path:
    """A folder with the wheels of everything but torch."""
    return download("small", "numpy>=2", "ninja", "setuptools")


def download(name: str, *packages: str) -> Path:
    """A folder with wheels for the base image's Python, filled once from the index that pip is set up for."""
    with _locked():
        folder = CACHE / f"wheels-{name}"
        if not folder.is_dir():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            python = Path(__file__).resolve().parents[2] / ".venv-eval" / "bin" / "python"
            command = [str(python), "-m", "pip", "download", "--quiet", "--dest", str(unfinished)]
            _run([*command, "--only-binary=:all:", f"--python-version={PYTHON}", *packages])
            unfinished.rename(folder)
        return folder


@contextmanager
def _locked() -> Iterator[None]:
    """One process at a time."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bootstrap(archive: Path) -> None:
    root = CACHE / "root"
    _unmount_below(root)
    shutil.rmtree(root, ignore_errors=True)
    debs = CACHE / "debs"
    debs.mkdir(exist_ok=True)
    what = ("--variant=minbase", f"--cache-dir={debs}", f"--include={_PACKAGES}")
    _run(["debootstrap", *what, SUITE, str(root), _MIRROR])

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if member.name.startswith(tuple(f"{left}/" for left in _LEFT_OUT)) else member

    unfinished = archive.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as tar:
        tar.add(root, arcname=".", filter=wanted)
    unfinished.rename(archive)
    shutil.rmtree(root)


def _unmount_below(root: Path) -> None:
    """Unmount what a run that was killed has left there: debootstrap mounts /proc, and then cannot start again."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    for point in reversed([point for point in points if point.startswith(f"{root}/")]):
        _run(["umount", point])


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=30 * _MINUTES, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}: {done.stdout[-1500:]}{done.stderr[-1500:]}", pytrace=False)
