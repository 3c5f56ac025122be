"""Copies the code that runs inside containers to a directory named after its content, to be bound read-only.

A container sees init and the packages given here, never the source tree they come from: an editable
installation, a task's solutions or the daemon's configuration are not among them. A copy is never changed; new code
gets a new directory, so that running containers keep theirs. Called by whoever builds sandbox specs.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.host.process_identity import identity, is_gone

_SCRATCH = ".stage-"
#: Modules of this package that run inside.
INSIDE = ("__init__.py", "protocol.py", "inside/*.py")


def stage(directory: Path, packages: Mapping[str, Path]) -> Path:
    """The directory to bind at /kernel-runner, made if it is not there yet.

    `packages` maps a place below it (`tasks/harness`) to a file or a folder; of a folder, all but caches is taken.

    Raises:
        OSError: something cannot be read or written.
    """
    files = dict(sorted(_files(packages)))
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    target = directory / digest.hexdigest()[:32]
    _clear(directory)
    if not target.is_dir():
        _write(target, files)
    return target


def _clear(directory: Path) -> None:
    """Remove what processes that were killed have left unfinished."""
    for path in directory.glob(f"{_SCRATCH}*"):
        if is_gone(path.name.removeprefix(_SCRATCH).rpartition("-")[0]):
            shutil.rmtree(path, ignore_errors=True)


def _files(packages: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
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
    """Write beside the target and rename: another process may stage the same at the same time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{identity()}-", dir=target.parent))
    try:
        for name, data in files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for path in [scratch, *scratch.rglob("*")]:
            # Judge and worker are nobody on the host: they need to read this whatever the daemon's umask is.
            path.chmod(0o755 if path.is_dir() else 0o644)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
