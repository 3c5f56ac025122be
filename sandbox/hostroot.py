"""The `host` root file system: a container root made of this host's own /usr and one Python environment, no image pull.

Owns what the generated archive holds and what is bound on top of it. Reads the host, changes nothing. Called by the
engine (to import the archive as an image) and by whoever builds sandbox specs (for the binds).

A bind of /usr alone does not make a root: compilers are found through /etc/alternatives, libraries through ld.so.cache,
getpass and torch need a passwd entry, and a virtual environment without its base prefix is a dead interpreter.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import RootFilesystemError
from sandbox.spec import JUDGE_UID, WORKER_UID, Bind

#: What a distribution may keep below the root as a link into /usr, or as a directory of its own.
_ROOT_NAMES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_MOUNT_POINTS = ("dev", "proc", "sys", "tmp", "run", "var/tmp", "usr", "work", "judge", "kernel-runner")
_COPIED = ("etc/ld.so.cache", "etc/ld.so.conf")
_COPIED_FOLDERS = ("etc/alternatives", "etc/ld.so.conf.d")

_PASSWD = f"""root:x:0:0:root:/:/bin/sh
judge:x:{JUDGE_UID}:{JUDGE_UID}:judge:/judge:/bin/sh
worker:x:{WORKER_UID}:{WORKER_UID}:worker:/work:/bin/sh
nobody:x:65534:65534:nobody:/:/usr/sbin/nologin
"""
_GROUP = f"root:x:0:\njudge:x:{JUDGE_UID}:\nworker:x:{WORKER_UID}:\nnogroup:x:65534:\n"
_WRITTEN = {
    "etc/passwd": _PASSWD,
    "etc/group": _GROUP,
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "etc/resolv.conf": "",
    "etc/hostname": "sandbox\n",
    "etc/default/locale": "LANG=C.UTF-8\n",
    "etc/timezone": "Etc/UTC\n",
}


@dataclass(frozen=True)
class HostRoot:
    """The root file system for one evaluation environment (a Python with torch, not the daemon's own)."""

    eval_python: Path

    @property
    def python(self) -> str:
        """The interpreter's path inside, which is its path outside."""
        return os.path.abspath(self.eval_python)

    @property
    def content_hash(self) -> str:
        """Identifies the archive; the same host gives the same hash."""
        return hashlib.sha256(self.tar()).hexdigest()

    def binds(self) -> tuple[Bind, ...]:
        """What is bound read-only: /usr, /opt/rocm, the environment and its base prefix, each at its own path.

        Binds do not carry along what is mounted below them, so such mounts are listed too.

        Raises:
            RootFilesystemError: the environment cannot be used by another user.
        """
        folders = self._folders()
        below = [point for point in _mount_points() if any(_is_below(point, folder) for folder in folders)]
        return tuple(Bind(source=path, target=path) for path in sorted({*folders, *below}))

    def tar(self) -> bytes:
        """The archive that the engine imports: links, mount points and a small /etc; the same bytes every time.

        Raises:
            RootFilesystemError: the environment cannot be used by another user.
        """
        return _archive(_entries(self._folders()))

    def _folders(self) -> tuple[str, ...]:
        return _bound_folders(self.python)


@functools.lru_cache(maxsize=8)
def _bound_folders(python: str) -> tuple[str, ...]:
    wanted = ["/usr", *_real_root_folders(), *_rocm(), *_prefixes(python)]
    folders = tuple(
        path for path in sorted(set(wanted)) if not any(_is_below(path, other) for other in wanted if other != path)
    )
    _check_reachable(python, folders)
    return folders


def _prefixes(python: str) -> Iterator[str]:
    """The environment's prefix and the prefix of the interpreter it was made from, as written and as resolved."""
    code = "import sys, json; print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]))"
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
        prefixes = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise RootFilesystemError(
            f"evaluation environment: {python} does not run as a Python interpreter ({error});"
            " expected the interpreter of a virtual environment with torch"
        ) from error
    for prefix in prefixes:
        for path in (os.path.abspath(prefix), os.path.realpath(prefix)):
            if path == "/":
                raise RootFilesystemError(f"evaluation environment: {python} has the prefix /, which would bind the host")
            yield path


def _check_reachable(python: str, folders: tuple[str, ...]) -> None:
    """Every link from the interpreter to its file lies within what is bound, and others may read it.

    Directories above the bound folders do not matter: inside they are made anew.
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
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    mode = os.stat(path).st_mode
    if not (mode & stat.S_IROTH and mode & stat.S_IXOTH):
        raise RootFilesystemError(f"evaluation environment: others may not run {path}; chmod o+rx it")


def _real_root_folders() -> Iterator[str]:
    """Directories like /lib64 on hosts whose /usr is not merged."""
    for name in _ROOT_NAMES:
        path = f"/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            yield path


def _rocm() -> Iterator[str]:
    """/opt/rocm where there is one; it is a link to a versioned directory."""
    if os.path.isdir("/opt/rocm"):
        yield os.path.realpath("/opt/rocm")


def _mount_points() -> list[str]:
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    # Spaces and the like stand as \040 in this file.
    return [line.split()[4].encode().decode("unicode_escape") for line in text.splitlines()]


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _entries(folders: tuple[str, ...]) -> dict[str, tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]]:
    """Archive members by name: directories, links, files with their content."""
    entries: dict[str, tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]] = {}

    def directory(name: str, mode: int = 0o755) -> None:
        for parent in reversed(Path(name).parents):
            if str(parent) not in (".", "/"):
                entries.setdefault(str(parent), _info(str(parent), tarfile.DIRTYPE, 0o755))
        entries.setdefault(name, _info(name, tarfile.DIRTYPE, mode))

    def link(name: str, target: str) -> None:
        if str(Path(name).parent) != ".":
            directory(str(Path(name).parent))
        info = _info(name, tarfile.SYMTYPE, 0o777)
        info.linkname = target
        entries[name] = info

    def file(name: str, data: bytes) -> None:
        directory(str(Path(name).parent))
        info = _info(name, tarfile.REGTYPE, 0o644)
        info.size = len(data)
        entries[name] = (info, data)

    for folder in folders:
        directory(folder.lstrip("/"))
    for name in _MOUNT_POINTS:
        directory(name)
    for name in _ROOT_NAMES:
        if os.path.islink(f"/{name}"):
            link(name, os.readlink(f"/{name}"))
    if os.path.islink("/opt/rocm"):
        link("opt/rocm", os.path.realpath("/opt/rocm"))
    for name, text in _WRITTEN.items():
        file(name, text.encode())
    for name in _COPIED:
        if os.path.isfile(f"/{name}"):
            file(name, Path("/", name).read_bytes())
    for folder in _COPIED_FOLDERS:
        if not os.path.isdir(f"/{folder}"):
            continue
        for path in sorted(Path("/", folder).iterdir()):
            name = str(path).lstrip("/")
            if path.is_symlink():
                link(name, os.readlink(path))
            elif path.is_file():
                file(name, path.read_bytes())
    return entries


def _info(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = mode
    return info


def _archive(entries: dict[str, tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Sorted, owned by root, dated 1970: the same host gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for _, entry in sorted(entries.items()):
            if isinstance(entry, tuple):
                archive.addfile(entry[0], io.BytesIO(entry[1]))
            else:
                archive.addfile(entry)
    return buffer.getvalue()
