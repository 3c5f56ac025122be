"""What an installation on a host consists of, as steps that are done once: files, links, and the system's own commands.

Owns the rule that a file of the operator's is never written over: files that come with a release are replaced only as
long as nobody else has changed them, and a record of what was written (`installed.json`) says so. Knows nothing of the
database or the engine. `root` lets tests install into a directory.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from runner.errors import ConfigError, InfrastructureError
from runner.model import Json

USER: Final = "kernel-runner"
UNIT: Final = "kernel-runner.service"
#: Installed, and left to the operator to enable.
GATEWAY_UNIT: Final = "kernel-runner-gateway.service"
GATEWAY_SOCKET: Final = "kernel-runner-gateway.socket"
PREFIX: Final = "/opt/kernel-runner"
RECORD: Final = f"{PREFIX}/installed.json"
CONFIG: Final = "/etc/kernel-runner/config.toml"
DATABASE_URL: Final = "/etc/kernel-runner/credentials/database_url"
SITE: Final = f"/etc/systemd/system/{UNIT}.d/site.conf"
EVALUATION: Final = f"{PREFIX}/eval"
#: What comes with a release and goes with it: name in the release's `systemd` folder, place on the host.
VENDOR: Final = {
    UNIT: f"/usr/local/lib/systemd/system/{UNIT}",
    GATEWAY_UNIT: f"/usr/local/lib/systemd/system/{GATEWAY_UNIT}",
    GATEWAY_SOCKET: f"/usr/local/lib/systemd/system/{GATEWAY_SOCKET}",
    "kernelrunner.slice": "/usr/local/lib/systemd/system/kernelrunner.slice",
    "kernel-runner.sysusers": "/usr/local/lib/sysusers.d/kernel-runner.conf",
    "kernel-runner.tmpfiles": "/usr/local/lib/tmpfiles.d/kernel-runner.conf",
}
#: Links into the release that is in use.
LINKS: Final = {
    f"{PREFIX}/bin": "bin",
    f"{PREFIX}/tasks": "tasks",
    "/usr/local/bin/kernel-runner": "bin/kernel-runner",
}
#: Of these the daemon's user becomes a member where they exist: the engine's socket, and devices of AMD.
GROUPS: Final = ("docker", "render", "video")
#: What belongs to the operator, or may be worth something to somebody: only `--purge` removes it.
KEPT: Final = (
    "/etc/kernel-runner",
    f"/etc/systemd/system/{UNIT}.d",
    f"/etc/systemd/system/{GATEWAY_UNIT}.d",
    f"/etc/systemd/system/{GATEWAY_SOCKET}.d",
    "/var/lib/kernel-runner",
    EVALUATION,
)
_COMMAND_S: Final = 300.0

Run = Callable[[Sequence[str]], "Ran"]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a command of the system's ended."""

    code: int
    #: What it printed, standard error last.
    said: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something that has to be so on the host."""

    #: In words that go on with "done" or "there already".
    what: str
    #: Whether it is not so yet.
    needed: Callable[[], bool]
    do: Callable[[], object]


@dataclass(kw_only=True)
class Record:
    """What earlier calls wrote, and so may replace or remove."""

    #: SHA-256 by path, of files that come with a release.
    files: dict[str, str] = field(default_factory=dict)
    #: Directories that were not there before.
    directories: list[str] = field(default_factory=list)
    #: The user was made, and was not there before.
    made_user: bool = False


def run(arguments: Sequence[str]) -> Ran:
    """Run a command of the system's.

    Raises:
        InfrastructureError: there is no such command, or it does not end.
    """
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, check=False, timeout=_COMMAND_S, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise InfrastructureError(f"{arguments[0]} is not on PATH: expected a Linux host with systemd") from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{' '.join(arguments)}: no end after {_COMMAND_S:.0f} s") from error
    return Ran(code=done.returncode, said=f"{done.stdout}{done.stderr}".strip())


class Host:
    """The host, below `root`; commands of the system's go through `run`."""

    def __init__(self, root: Path = Path("/"), *, run: Run = run) -> None:
        self.root = root
        self._run = run
        self.record = self._read()

    def at(self, path: str) -> Path:
        """Where a path of the host is."""
        return self.root / path.lstrip("/")

    def command(self, *arguments: str) -> str:
        """Run a command of the system's; what it printed.

        Raises:
            InfrastructureError: it failed.
        """
        ran = self._run(arguments)
        if ran.code != 0:
            raise InfrastructureError(f"`{' '.join(arguments)}` ended with exit code {ran.code}: {ran.said[-1500:]}")
        return ran.said

    def asks(self, *arguments: str) -> bool:
        """Whether a command of the system's says yes."""
        return self._run(arguments).code == 0

    @property
    def installed(self) -> bool:
        """Whether an installation has begun here."""
        return self.at(RECORD).exists()

    @property
    def release(self) -> str | None:
        """The path of the release in use, or None."""
        link = self.at(f"{PREFIX}/bin")
        return str(link.readlink().parent) if link.is_symlink() else None

    def link(self, path: str, target: str) -> Step:
        """A symbolic link; one that leads elsewhere is replaced, anything else is the operator's."""
        place = self.at(path)

        def do() -> None:
            if place.exists() and not place.is_symlink():
                raise ConfigError(f"{path} is there and no link: expected nothing, or a link; move it away")
            self._directory(place.parent)
            unfinished = place.with_name(f"{place.name}.unfinished")
            unfinished.unlink(missing_ok=True)
            unfinished.symlink_to(target)
            unfinished.rename(place)

        return Step(
            what=f"link {path} to {target}",
            needed=lambda: not place.is_symlink() or str(place.readlink()) != target,
            do=do,
        )

    def vendor_file(self, path: str, content: bytes, *, say: Callable[[str], object]) -> Step:
        """A file of a release; what somebody else has written in its place stays, and the new one lies beside it."""
        place = self.at(path)

        def do() -> None:
            found = _digest(place)
            if found is not None and found != self.record.files.get(path):
                place.with_name(f"{place.name}.new").write_bytes(content)
                say(f"{path} was changed by somebody and stays; this release's is {path}.new")
                return
            self._write(place, content, 0o644)
            self.record.files[path] = hashlib.sha256(content).hexdigest()
            self.save()

        return Step(what=f"file {path}", needed=lambda: _digest(place) != hashlib.sha256(content).hexdigest(), do=do)

    def own_file(self, path: str, content: bytes, *, mode: int = 0o644) -> Step:
        """A file of the operator's: written where there is none, and never again."""
        place = self.at(path)
        return Step(
            what=f"file {path}, yours from now on",
            needed=lambda: not os.path.lexists(place),
            do=lambda: self._write(place, content, mode),
        )

    def user(self) -> list[Step]:
        """The daemon's user, and its groups."""

        def make() -> None:
            self.record.made_user = True
            self.save()
            self.command("systemd-sysusers", VENDOR["kernel-runner.sysusers"])

        return [
            Step(what=f"user {USER}", needed=lambda: not user_exists(), do=make),
            *(
                Step(
                    what=f"user {USER} in group {group}",
                    needed=lambda group=group: not _is_member(group),  # type: ignore[misc]  # mypy: default in lambda
                    do=lambda group=group: self.command("usermod", "--append", "--groups", group, USER),  # type: ignore[misc]  # as above
                )
                for group in GROUPS
                if _exists(group)
            ),
        ]

    def tell_systemd(self) -> None:
        """Let systemd read its units again."""
        self.command("systemctl", "daemon-reload")

    def remove(self, path: str) -> Step:
        """Whatever is at a path goes."""
        place = self.at(path)

        def do() -> None:
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)

        return Step(what=f"remove {path}", needed=lambda: os.path.lexists(place), do=do)

    def remove_vendor_file(self, path: str, *, say: Callable[[str], object]) -> Step:
        """A file of a release goes, unless somebody has changed it."""
        place = self.at(path)

        def do() -> None:
            if _digest(place) != self.record.files.get(path):
                say(f"{path} was changed by somebody and stays")
                return
            place.unlink()
            place.with_name(f"{place.name}.new").unlink(missing_ok=True)

        return Step(what=f"remove {path}", needed=lambda: os.path.lexists(place), do=do)

    def remove_directories(self) -> Step:
        """The directories that were made go where they are empty, the record with them."""

        def do() -> None:
            self.at(RECORD).unlink(missing_ok=True)
            # The prefix was there before this process: the release was made in it.
            for path in sorted({*self.record.directories, PREFIX}, key=len, reverse=True):
                with suppress(OSError):
                    self.at(path).rmdir()

        return Step(what="remove what is empty", needed=lambda: self.installed, do=do)

    def save(self) -> None:
        """Keep the record."""
        place = self.at(RECORD)
        self._directory(place.parent)
        unfinished = place.with_name(f"{place.name}.unfinished")
        unfinished.write_text(json.dumps(asdict(self.record), indent=2) + "\n", encoding="utf-8")
        unfinished.rename(place)

    def _read(self) -> Record:
        try:
            found: Json = json.loads(self.at(RECORD).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Record()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.at(RECORD)}: cannot be read ({error}): expected the record of what was installed. Move it "
                "away to install anew; files that were changed since stay as they are"
            ) from error
        return Record(**found)

    def _write(self, place: Path, content: bytes, mode: int) -> None:
        self._directory(place.parent)
        unfinished = place.with_name(f".{place.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        # Nobody else may read a secret, not for a moment either.
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        unfinished.chmod(mode)
        unfinished.rename(place)

    def _directory(self, place: Path) -> None:
        missing = [folder for folder in (place, *place.parents) if not folder.exists()]
        place.mkdir(parents=True, exist_ok=True, mode=0o755)
        new = [f"/{folder.relative_to(self.root)}" for folder in missing]
        if new:
            self.record.directories += new
            self.save()


def perform(steps: Sequence[Step], *, dry_run: bool, say: Callable[[str], object]) -> int:
    """Do what is not so yet, in order, or only say it; how many steps that were."""
    count = 0
    for step in steps:
        if not step.needed():
            say(f"· {step.what}: there already")
            continue
        count += 1
        if not dry_run:
            step.do()
        say(f"{'would' if dry_run else '✓'} {step.what}")
    return count


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


def tasks_folder() -> Path:
    """Where the release has its tasks."""
    import tasks

    return Path(tasks.__file__).parent


def user_exists() -> bool:
    """Whether the daemon's user is there."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True


def _exists(group: str) -> bool:
    try:
        grp.getgrnam(group)
    except KeyError:
        return False
    return True


def _is_member(group: str) -> bool:
    return USER in grp.getgrnam(group).gr_mem


def _digest(place: Path) -> str | None:
    """The SHA-256 of a file, or None where there is nothing."""
    if not os.path.lexists(place):
        return None
    return hashlib.sha256(place.read_bytes()).hexdigest()
