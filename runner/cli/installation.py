"""What an installation writes to a host: files, links, and what the system's own commands do.

A Debian package owns what it brings: dpkg replaces and removes it. On a host without dpkg the files of a release lie
below /usr/local/lib, and every installation writes them again. A file of the operator's is written where there is none,
and never again. Knows nothing of the database or the container engine. `root` lets tests install into a directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import typer

from runner.base.errors import ConfigError, InfrastructureError

USER: Final = "kernel-runner"
UNIT: Final = "kernel-runner.service"
#: Installed, and left to the operator to enable.
GATEWAY_UNIT: Final = "kernel-runner-gateway.service"
GATEWAY_SOCKET: Final = "kernel-runner-gateway.socket"
PREFIX: Final = "/opt/kernel-runner"
#: Where the Debian package has its wheels; it is there exactly on hosts with that package.
PACKAGE: Final = "/opt/kernel-runner/wheels"
CONFIG: Final = "/etc/kernel-runner/config.toml"
DATABASE_URL: Final = "/etc/kernel-runner/credentials/database_url"
SITE: Final = f"/etc/systemd/system/{UNIT}.d/site.conf"
#: Links into the release that is in use.
LINKS: Final = {f"{PREFIX}/bin": "bin", f"{PREFIX}/tasks": "tasks"}
#: Files of a release where no package brings them: name in the release's `systemd` folder, place on the host.
VENDOR: Final = {
    UNIT: f"/usr/local/lib/systemd/system/{UNIT}",
    GATEWAY_UNIT: f"/usr/local/lib/systemd/system/{GATEWAY_UNIT}",
    GATEWAY_SOCKET: f"/usr/local/lib/systemd/system/{GATEWAY_SOCKET}",
    "kernelrunner.slice": "/usr/local/lib/systemd/system/kernelrunner.slice",
    "kernel-runner.sysusers": "/usr/local/lib/sysusers.d/kernel-runner.conf",
    "kernel-runner.tmpfiles": "/usr/local/lib/tmpfiles.d/kernel-runner.conf",
}
#: The command on PATH, where no package brings it.
COMMAND: Final = "/usr/local/bin/kernel-runner"

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of the system's; its output has standard error in it.

    Raises:
        InfrastructureError: there is no such command.
    """
    try:
        # Without a time limit: a stop takes as long as the current runs, and systemd bounds it.
        return subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise InfrastructureError(f"{arguments[0]} is not on PATH: expected a Linux host with systemd") from error


class Host:
    """The host, below `root`; the system's commands go through `run`. Prints each change."""

    def __init__(self, root: Path = Path("/"), *, run: Run = run) -> None:
        self._root = root
        self._run = run

    def at(self, path: str) -> Path:
        """Where a path of the host is."""
        return self._root / path.lstrip("/")

    def command(self, *arguments: str) -> str:
        """Run a command of the system's; what it printed.

        Raises:
            InfrastructureError: it failed.
        """
        ran = self._run(arguments)
        if ran.returncode != 0:
            output = ran.stdout.strip()[-1500:]
            raise InfrastructureError(f"`{' '.join(arguments)}` ended with exit code {ran.returncode}: {output}")
        return ran.stdout

    def asks(self, *arguments: str) -> bool:
        """Whether a command of the system's says yes."""
        return self._run(arguments).returncode == 0

    @property
    def booted(self) -> bool:
        """Whether systemd is the host's service manager."""
        return self.at("/run/systemd/system").is_dir()

    @property
    def packaged(self) -> bool:
        """Whether the files of the release are dpkg's."""
        return self.at(PACKAGE).exists()

    @property
    def release(self) -> str | None:
        """The path of the release in use, or None."""
        link = self.at(f"{PREFIX}/bin")
        return str(link.readlink().parent) if link.is_symlink() else None

    def use(self, release: str) -> None:
        """Let the links lead into a release."""
        for path, inside in LINKS.items():
            self.link(path, f"{release}/{inside}")

    def put(self, release: str) -> None:
        """A release with all that belongs to it: links, units, user and groups, directories."""
        self.use(release)
        if self.packaged:
            # Of an installation without the package: they would count instead of the package's.
            self.remove(*VENDOR.values(), COMMAND)
        else:
            for name, path in VENDOR.items():
                self.file(path, shipped(name), replace=True)
            self.link(COMMAND, f"{PREFIX}/bin/kernel-runner")
        self.command("systemd-sysusers", "kernel-runner.conf")
        self.command("systemd-tmpfiles", "--create", "kernel-runner.conf")
        if self.booted:
            self.command("systemctl", "daemon-reload")

    def link(self, path: str, target: str) -> None:
        """A symbolic link; one that leads elsewhere is replaced, anything else is the operator's.

        Raises:
            ConfigError: something else is in its place.
        """
        place = self.at(path)
        if place.is_symlink() and str(place.readlink()) == target:
            return
        if place.exists() and not place.is_symlink():
            raise ConfigError(f"{path} is there and no link: expected nothing, or a link; move it away")
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f"{place.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        unfinished.symlink_to(target)
        unfinished.rename(place)
        typer.echo(f"✓ link {path} to {target}")

    def file(self, path: str, content: bytes, *, mode: int = 0o644, replace: bool = False) -> None:
        """A file; without `replace` it is the operator's: written where there is none, and never again."""
        place = self.at(path)
        if os.path.lexists(place) and not (replace and place.read_bytes() != content):
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".{place.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        # No other user may read a secret, not even for a moment.
        unfinished.touch(mode=0o600, exist_ok=False)
        unfinished.write_bytes(content)
        unfinished.chmod(mode)
        unfinished.rename(place)
        typer.echo(f"✓ file {path}{'' if replace else ', yours from now on'}")

    def remove(self, *paths: str) -> None:
        """Whatever is at these paths goes."""
        for path in paths:
            place = self.at(path)
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            elif os.path.lexists(place):
                place.unlink()
            else:
                continue
            typer.echo(f"✓ remove {path}")

    def remove_release(self) -> None:
        """Every release with what belongs to it, but not the user; directories that are empty then go too."""
        self.remove(*LINKS, f"{PREFIX}/releases")
        if not self.packaged:
            self.remove(COMMAND, *VENDOR.values())
        folders = {str(Path(path).parent) for path in VENDOR.values()}
        for folder in (*folders, "/usr/local/lib/systemd", PREFIX):
            with suppress(OSError):
                self.at(folder).rmdir()


def own_release() -> Path:
    """The release this process runs from."""
    return Path(sys.prefix)


def shipped(name: str) -> bytes:
    """A file of the release's `systemd` folder.

    Raises:
        ConfigError: this is no release, and no checkout either.
    """
    for folder in (own_release() / "share" / "kernel-runner" / "systemd", Path(__file__).parents[2] / "systemd"):
        if (folder / name).is_file():
            return (folder / name).read_bytes()
    raise ConfigError(f"{name} did not come with {own_release()}: expected a release made by `make package`")
