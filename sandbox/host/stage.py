"""Copies the code that runs inside containers to a directory, which every container mounts read-only.

A container gets init's code and the given packages, never the source tree they come from. So it cannot read an editable
installation, a task's solutions or the daemon's configuration. The directory is named after its content and is never
changed: new code gets a new directory, and running containers keep theirs. Beside the sources lies their bytecode for
this process's version of Python; an image with another version compiles them itself, in each process.
"""

from __future__ import annotations

import hashlib
import py_compile
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.host.process_identity import identity, is_gone
from sandbox.policy.hostconfig import CODE
from sandbox.spec import ACCOUNTS, Bind

_SCRATCH = ".stage-"
#: Files of this package that run inside, as patterns below sandbox/.
INSIDE = ("__init__.py", "mountinfo.py", "protocol.py", "inside/*.py")
#: Names of the users in every container: getpass, torch and programs of tasks ask for them.
_PASSWD = "".join(
    (
        "root:x:0:0:root:/:/bin/sh\n",
        *(
            f"judge:x:{both.judge}:{both.judge}:judge:/judge:/bin/sh\n"
            f"worker:x:{both.worker}:{both.worker}:worker:/work:/bin/sh\n"
            for both in ACCOUNTS
        ),
        "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    )
)
_GROUP = "".join(
    (
        "root:x:0:\n",
        *(f"judge:x:{both.judge}:\nworker:x:{both.worker}:\n" for both in ACCOUNTS),
        "nogroup:x:65534:\n",
    )
)
_ETC = {"etc/passwd": _PASSWD.encode(), "etc/group": _GROUP.encode()}


def stage(directory: Path, packages: Mapping[str, Path]) -> Path:
    """Return the directory to bind (`binds`); create it if it does not exist, or is not whole.

    `packages` maps a path below it (`tasks/harness`) to a file or a folder. Caches in a folder are left out.

    Raises:
        OSError: a file cannot be read or written.
        PyCompileError: a file is no Python of this version.
    """
    files = dict(sorted(_files(packages)))
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    target = directory / digest.hexdigest()[:32]
    _clear(directory)
    if not _is_whole(target, files):
        # After a power cut the directory may be there, and its files empty.
        shutil.rmtree(target, ignore_errors=True)
        _write(target, files)
    return target


def _is_whole(target: Path, files: Mapping[str, bytes]) -> bool:
    try:
        return all((target / name).read_bytes() == data for name, data in files.items())
    except OSError:
        return False


def binds(staged: Path) -> tuple[Bind, ...]:
    """What every container has of a staged directory: the code, and names for its users, whatever its image holds."""
    return (
        Bind(source=str(staged), target=CODE),
        *(Bind(source=str(staged / name), target=f"/{name}") for name in _ETC),
    )


def _clear(directory: Path) -> None:
    """Remove the unfinished directories of processes that were killed."""
    for path in directory.glob(f"{_SCRATCH}*"):
        if is_gone(path.name.removeprefix(_SCRATCH).rpartition("-")[0]):
            shutil.rmtree(path, ignore_errors=True)


def _files(packages: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    yield from _ETC.items()
    here = Path(__file__).parents[1]
    for pattern in INSIDE:
        for path in here.glob(pattern):
            yield f"sandbox/{path.relative_to(here).as_posix()}", path.read_bytes()
    for place, source in packages.items():
        if source.is_file():
            yield place, source.read_bytes()
            continue
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{place}/{path.relative_to(source).as_posix()}", path.read_bytes()


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    """Write to a scratch directory and rename it: another process may stage the same code at the same time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{identity()}-", dir=target.parent))
    try:
        for name, data in files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            if path.suffix == ".py":
                # Containers cannot write here: without bytecode each of their processes would compile these files.
                # The directory never changes, so nothing is compared with the source.
                py_compile.compile(
                    str(path), doraise=True, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
                )
        for path in [scratch, *scratch.rglob("*")]:
            # Judge and worker have no account on the host, so all users must be able to read this, whatever the umask.
            path.chmod(0o755 if path.is_dir() else 0o644)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
