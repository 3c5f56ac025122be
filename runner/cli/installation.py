"""What an installation writes to a host: files, links, and what the system's own commands do.

The Debian package owns what it brings: dpkg replaces and removes it. A file of the operator's is written where there is
none, and never again. Knows nothing of the database or the container engine. `root` lets tests install into a
directory.
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

UNIT: Final = "kernel-runner.service"
#: Installed, and left to the operator to enable.
GATEWAY_UNIT: Final = "kernel-runner-gateway.service"
WEBHOOKS_UNIT: Final = "kernel-runner-webhooks.service"
GATEWAY_SOCKET: Final = "kernel-runner-gateway.socket"
DISCORD_UNIT: Final = "kernel-runner-discord.service"
PREFIX: Final = "/opt/kernel-runner"
#: Where postinst makes the environment of each release.
RELEASES: Final = "/opt/kernel-runner/releases"
CONFIG: Final = "/etc/kernel-runner/config.toml"
SITE: Final = f"/etc/systemd/system/{UNIT}.d/site.conf"
DATABASE_URL: Final = "/etc/kernel-runner/credentials/database_url"
#: Links into the release that is in use.
LINKS: Final = {f"{PREFIX}/bin": "bin", f"{PREFIX}/tasks": "tasks"}
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
    def release(self) -> str | None:
        """The path of the release in use, or None."""
        link = self.at(f"{PREFIX}/bin")
        return str(link.readlink().parent) if link.is_symlink() else None

    def use(self, release: str) -> None:
        """Let the links lead into a release."""
        for path, inside in LINKS.items():
            self.link(path, f"{release}/{inside}")

    def put(self, release: str) -> None:
        """A release with all that belongs to it: links, user and groups, directories."""
        self.use(release)
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

    def file(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """A file of the operator's: written where there is none, and never again."""
        place = self.at(path)
        if os.path.lexists(place):
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".{place.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        # No other user may read a secret, not even for a moment.
        unfinished.touch(mode=0o600, exist_ok=False)
        unfinished.write_bytes(content)
        unfinished.chmod(mode)
        unfinished.rename(place)
        typer.echo(f"✓ file {path}, yours from now on")

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
        """Every release, but not the user."""
        self.remove(*LINKS, RELEASES)
        with suppress(OSError):
            self.at(PREFIX).rmdir()


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
