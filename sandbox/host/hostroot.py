"""The `host` root file system: made from this host's /usr and one Python environment, so no image must be pulled.

Owns the content of the generated archive, which the engine imports as an image, and the binds on top of it. Reads the
host and changes nothing.

A bind of /usr alone is no usable root. Compilers are found through /etc/alternatives and libraries through ld.so.cache;
and a virtual environment does not start without its base prefix.
"""

from __future__ import annotations

import functools
import io
import json
import os
import re
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox import mountinfo
from sandbox.errors import RootFilesystemError
from sandbox.spec import Bind

#: Directories that are writable inside. Their owner could replace a bind below them.
_WRITABLE = ("/work", "/judge", "/tmp", "/var/tmp", "/run", "/dev", "/proc", "/sys")  # noqa: S108 names, nothing is written
#: Mount point for an environment whose own path lies below one of these, or holds one of the characters that torch and
#: ninja do not quote in a compiler's command line.
_MOVED = "/opt/kernel-runner/environment"
_UNQUOTED = re.compile(r"[\s\"'\\]")
#: Software of vendors outside of /usr, each a directory or a link to one with a version in its name.
_VENDORS = ("/opt/rocm", "/opt/nvidia/nsight-compute")
#: A distribution has these below the root as links into /usr, or as directories.
_ROOT_NAMES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
#: Mount points with modes: a runtime may give a memory file system the mode of the directory that it covers.
_MOUNT_POINTS = {
    "dev": 0o755,
    "proc": 0o755,
    "sys": 0o755,
    "run": 0o755,
    "tmp": 0o1777,
    "var/tmp": 0o1777,
    "work": 0o700,
    "judge": 0o700,
    "kernel-runner": 0o755,
}
_COPIED = ("etc/ld.so.cache", "etc/ld.so.conf")
_COPIED_FOLDERS = ("etc/alternatives", "etc/ld.so.conf.d")

_WRITTEN = {
    # Mount points (`sandbox.host.stage`).
    "etc/passwd": "",
    "etc/group": "",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "etc/resolv.conf": "",
    "etc/hostname": "sandbox\n",
    "etc/default/locale": "LANG=C.UTF-8\n",
    "etc/timezone": "Etc/UTC\n",
}


@dataclass(frozen=True)
class HostRoot:
    """The root file system for one evaluation environment: a Python with torch, not the daemon's own environment."""

    eval_python: Path

    @property
    def python(self) -> str:
        """The interpreter's path in the container: the same as outside, unless its environment is bound elsewhere.

        Raises:
            RootFilesystemError: the environment cannot be used.
        """
        return _inside(self._outside, self._folders())

    @property
    def _outside(self) -> str:
        path = os.path.abspath(self.eval_python)  # noqa: PTH100 resolve() would leave the environment
        # An environment that is a link has two paths, of which at most one can be moved.
        folder = os.path.dirname(os.path.dirname(path))  # noqa: PTH120 see above
        real = os.path.realpath(folder)
        moved = real != folder and any(map(_must_move, (folder, real)))
        return real + path.removeprefix(folder) if moved else path

    def binds(self) -> tuple[Bind, ...]:
        """The read-only binds: /usr, vendors' software, the environment and its base prefix, each at its own path.

        A bind does not include what is mounted below it, so such mounts are listed too. An environment below /work or
        another writable directory, or with a name that compilers misread, is bound elsewhere; a virtual environment
        works at another path.

        Raises:
            RootFilesystemError: another user cannot use the environment.
        """
        folders = self._folders()
        points = (mount.point for mount in mountinfo.parse(Path("/proc/self/mountinfo").read_bytes()))
        below = [point for point in points if any(_is_below(point, folder) for folder in folders)]
        return tuple(Bind(source=path, target=_inside(path, folders)) for path in sorted({*folders, *below}))

    def tar(self) -> bytes:
        """The archive that the engine imports: links, mount points and a small /etc. The bytes are reproducible.

        Raises:
            RootFilesystemError: another user cannot use the environment.
        """
        return _archive(self._folders(), _stamp(self._outside))

    def _folders(self) -> tuple[str, ...]:
        return _bound_folders(self._outside, _stamp(self._outside))


def _stamp(python: str) -> tuple[object, ...]:
    """Another one after a change of what is copied, of the vendors' releases, or of the environment's interpreter."""
    watched = (*_COPIED, *_COPIED_FOLDERS, f"{os.path.dirname(os.path.dirname(python))}/pyvenv.cfg")  # noqa: PTH120 as `_outside`
    times = (path.stat().st_mtime_ns if path.exists() else None for path in (Path("/", name) for name in watched))
    return (*times, *_vendors(), os.path.realpath(python))


@functools.lru_cache(maxsize=8)
def _archive(folders: tuple[str, ...], _stamp: tuple[object, ...]) -> bytes:
    return _root(folders).to_bytes()


@functools.lru_cache(maxsize=8)
def _bound_folders(python: str, _stamp: tuple[object, ...]) -> tuple[str, ...]:
    # Directories such as /lib64, on hosts whose /usr is not merged.
    root_folders = [f"/{name}" for name in _ROOT_NAMES if Path("/", name).is_dir() and not Path("/", name).is_symlink()]
    needed = ["/usr", *root_folders, *_vendors(), *_prefixes(python)]
    folders = tuple(
        path for path in sorted(set(needed)) if not any(_is_below(path, other) for other in needed if other != path)
    )
    _check_reachable(python, folders)
    clashing = [folder for folder in folders if _must_move(folder)]
    if clashing and clashing != [_environment_of(python, folders)]:
        raise RootFilesystemError(
            f"evaluation environment: {', '.join(clashing)} would be bound below a directory that submissions can"
            " write, or has a name that compilers misread; expected base interpreters outside of"
            f" {', '.join(_WRITABLE)}, without spaces, quotes and backslashes: make the environment from another Python"
        )
    return folders


def _environment_of(python: str, folders: tuple[str, ...]) -> str | None:
    """The bound folder that holds the interpreter, if it is a virtual environment; only those can be moved."""
    folder = next((folder for folder in folders if _is_below(python, folder)), None)
    return folder if folder is not None and Path(folder, "pyvenv.cfg").is_file() else None


def _must_move(folder: str) -> bool:
    return _UNQUOTED.search(folder) is not None or any(
        folder == place or _is_below(folder, place) for place in _WRITABLE
    )


def _inside(path: str, folders: tuple[str, ...]) -> str:
    """The path in the container of a path on the host."""
    for folder in folders:
        if _must_move(folder) and (path == folder or _is_below(path, folder)):
            return _MOVED + path.removeprefix(folder)
    return path


def _prefixes(python: str) -> Iterator[str]:
    """The prefixes of the environment and of its base interpreter, as written and with links resolved."""
    code = "import sys, json; print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]))"
    try:
        done = subprocess.run(
            [python, "-I", "-c", code],
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=60,
            check=True,
        )
        prefixes = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise RootFilesystemError(
            f"evaluation environment: {python} does not run as a Python interpreter ({error});"
            " expected the interpreter of a virtual environment with torch"
        ) from error
    for prefix in prefixes:
        for path in (os.path.normpath(prefix), os.path.realpath(prefix)):
            if path == "/":
                raise RootFilesystemError(
                    f"evaluation environment: {python} has the prefix /, which would bind the host"
                )
            yield path


def _check_reachable(python: str, folders: tuple[str, ...]) -> None:
    """Check that every link from the interpreter to its file lies within the binds, and that other users may read it.

    Directories above the bound folders do not matter: the archive creates them anew.
    """
    path = python
    for _ in range(40):
        folder = next((folder for folder in folders if _is_below(path, folder) or path == folder), None)
        if folder is None:
            raise RootFilesystemError(
                f"evaluation environment: {python} leads to {path}, which is outside of {', '.join(folders)};"
                " make the environment from an interpreter below its own prefix"
            )
        for parent in [Path(path).parent, *Path(path).parent.parents]:
            if not _is_below(str(parent), folder) and str(parent) != folder:
                break
            if not parent.stat().st_mode & stat.S_IXOTH:
                raise RootFilesystemError(f"evaluation environment: others may not enter {parent}; chmod o+rx it")
        if not Path(path).is_symlink():
            break
        path = os.path.normpath(Path(path).parent / Path(path).readlink())
    mode = Path(path).stat().st_mode
    if not (mode & stat.S_IROTH and mode & stat.S_IXOTH):
        raise RootFilesystemError(f"evaluation environment: others may not run {path}; chmod o+rx it")


def _vendors() -> Iterator[str]:
    """What there is of the vendors' software."""
    yield from (os.path.realpath(path) for path in _VENDORS if Path(path).is_dir())


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


class _Archive:
    """A root file system under construction: directories, links and small files by name."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def add(self, name: str, kind: bytes, mode: int, *, data: bytes = b"", target: str = "") -> None:
        """Add a member. Directories above it get mode 0755, because judge and worker must traverse them."""
        for folder in map(str, reversed(Path(name).parents[:-1])):
            if folder not in self._members:
                self.add(folder, tarfile.DIRTYPE, 0o755)
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.linkname, info.size = kind, mode, target, len(data)
        self._members[name] = info, data

    def directory(self, name: str, mode: int = 0o755) -> None:
        """Add a directory, if it is not there."""
        if name not in self._members:
            self.add(name, tarfile.DIRTYPE, mode)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self.add(name, tarfile.SYMTYPE, 0o777, target=target)

    def file(self, name: str, data: bytes) -> None:
        """Add a file that every user may read."""
        self.add(name, tarfile.REGTYPE, 0o644, data=data)

    def copy(self, path: Path) -> None:
        """Add a link or a file of the host at its own path; other kinds are left out."""
        name = str(path).lstrip("/")
        if path.is_symlink():
            self.link(name, str(path.readlink()))
        elif path.is_file():
            self.file(name, path.read_bytes())

    def to_bytes(self) -> bytes:
        """The archive as bytes, reproducible: sorted by name, owned by root, dated 1970."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for _, (info, data) in sorted(self._members.items()):
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()


def _root(folders: tuple[str, ...]) -> _Archive:
    archive = _Archive()
    for folder in folders:
        archive.directory(_inside(folder, folders).lstrip("/"))
    for name, mode in _MOUNT_POINTS.items():
        archive.directory(name, mode)
    for path in (Path("/", name) for name in _ROOT_NAMES):
        if path.is_symlink():
            archive.copy(path)
    for folder in filter(os.path.islink, _VENDORS):
        archive.link(folder.lstrip("/"), os.path.realpath(folder))
    for name, text in _WRITTEN.items():
        archive.file(name, text.encode())
    for name in _COPIED:
        archive.copy(Path("/", name))
    for folder in _COPIED_FOLDERS:
        for path in Path("/", folder).glob("*"):
            archive.copy(path)
    return archive
