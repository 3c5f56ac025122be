"""The files of a spool: one per result, durable, bounded together, and readable by the daemon's user alone.

A result is written under another name, synced and renamed, and the directory is synced. So after `put` has returned
True a power cut does not lose it, and no reader sees half of one. Files that cannot be read, and results that the
database refuses, go to `aside/` as evidence for the operator. They use a share of the space, and the oldest is removed
first. A full or failing disk is a return value here, never an exception, and never costs a result that was kept before.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.base.durable import sync_directory
from runner.base.logs import get_logger
from runner.base.model import Job, JobResult
from runner.daemon.outcomes.spool.format import (
    Content,
    Decoded,
    UnreadableError,
    bare,
    decode,
    encode,
    without_artifacts,
)

_log = get_logger(__name__)

ASIDE: Final = "aside"
#: What evidence may take of the room.
_ASIDE_SHARE: Final = 0.25
#: A number that only orders, the job's id, the attempt.
_NAME: Final = re.compile(r"(\d{8,})-(\d+)-(\d+)\.result")
_PART: Final = ".part"


@dataclass(frozen=True, kw_only=True)
class Spooled:
    """One result that waits on disk."""

    #: As much of it as committing needs: no code, no task, no seed.
    job: Job
    #: Where it was evaluated.
    slot: str
    path: Path


class _NotKeptError(Exception):
    """A result is not on disk; says why."""


class Spool:
    """The results below a directory, which one process at a time may use. Threadsafe.

    `max_bytes` bounds everything below it and may be changed at any time. The directory is made when first needed.
    """

    def __init__(self, directory: Path, *, max_bytes: int) -> None:
        self._directory = directory
        self._aside = directory / ASIDE
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        #: Files that were looked at: a result, or None for one that can neither be used nor moved.
        self._known: dict[Path, Spooled | None] = {}
        #: The logged reason why nothing is kept; logged once, until something is kept.
        self._said: set[str] = set()

    @property
    def size_bytes(self) -> int:
        """Size of everything kept, evidence included."""
        return sum(found.st_size for _, found in (*_entries(self._directory), *_entries(self._aside)))

    @property
    def count(self) -> int:
        """How many results wait."""
        return len(self.pending())

    def put(self, job: Job, result: JobResult, *, slot: str) -> bool:
        """Keep a result; True: it is on disk. Of a claim that has one already, that one stays.

        A database that lost its last moments gives out the same attempt of a job again. That is another claim.

        When room is short old evidence makes way, then the artifacts are left out, which the report then says. False:
        there is no room all the same, or the disk fails; both are logged.

        Raises:
            TypeError, ValueError: the result holds something that JSON has no word for.
        """
        trouble = ""
        variants = [result, without_artifacts(result)] if result.artifacts else [result]
        with self._lock:
            claim = (*job.key, job.started_at)
            there = [known.job for path, known in self._known.items() if known is not None and path.exists()]
            if any((*known.key, known.started_at) == claim for known in there):
                return True
            for variant in variants:
                try:
                    path = self._keep(job, encode(job, variant, slot=slot))
                except _NotKeptError as error:
                    trouble = str(error)
                    continue
                self._known[path] = Spooled(job=bare(job), slot=slot, path=path)
                self._said.clear()
                if variant is not result:
                    _log.warning("spool_full_artifacts_dropped", job=job.id)
                return True
            self._say(trouble)
        return False

    def pending(self) -> tuple[Spooled, ...]:
        """The results that wait, oldest first. Files that are none are set aside."""
        with self._lock:
            present = dict(_entries(self._directory))
            self._known = {path: known for path, known in self._known.items() if path in present}
            for path, found in present.items():
                if path not in self._known:
                    self._look_at(path, found)
            waiting = [known for known in self._known.values() if known is not None]
            return tuple(sorted(waiting, key=lambda spooled: spooled.path.name))

    def load(self, spooled: Spooled) -> JobResult | None:
        """A result that waits. None: not now, because it is gone, set aside as damaged, or the disk fails."""
        with self._lock:
            decoded = self._read(spooled.path, with_artifacts=True)
        return None if decoded is None else decoded.result

    def remove(self, spooled: Spooled) -> None:
        """Forget a result that is committed, or is evidence in the database."""
        with self._lock:
            try:
                spooled.path.unlink(missing_ok=True)
            except OSError as error:
                # Delivered once more after a restart, which does no harm; but not again and again until then.
                self._known[spooled.path] = None
                _log.warning("spool_file_not_removed", path=str(spooled.path), error=str(error))
            else:
                self._known.pop(spooled.path, None)

    def set_aside(self, spooled: Spooled, reason: str) -> None:
        """Keep a result as evidence only: it will never be accepted."""
        with self._lock:
            self._move_aside(spooled.path, reason)

    # -- inside: everything below holds the lock ------------------------------------------------------------------

    def _keep(self, job: Job, content: Content) -> Path:
        if not self._has_room(content.size_bytes):
            raise _NotKeptError(f"{self._directory}: the limit of {self.max_bytes} bytes is reached")
        numbers = [int(match[1]) for path, _ in _entries(self._directory) if (match := _NAME.fullmatch(path.name))]
        path = self._directory / f"{max(numbers, default=0) + 1:08d}-{job.id}-{job.attempt}.result"
        part = path.with_name(path.name + _PART)
        try:
            _make(self._directory)
            _write(part, content)
            part.rename(path)
            sync_directory(self._directory)
        except OSError as error:
            # The renamed file too: what may not survive a power cut does not count, and must not turn up later.
            for written in (part, path):
                with suppress(OSError):
                    written.unlink(missing_ok=True)
            raise _NotKeptError(f"{self._directory}: {error.strerror or error}") from error
        return path

    def _has_room(self, size_bytes: int) -> bool:
        """Whether so much more fits; old evidence makes way if that helps."""
        evidence = sorted(_entries(self._aside), key=lambda entry: entry[1].st_mtime_ns)
        free_bytes = self.max_bytes - self.size_bytes
        if free_bytes + sum(found.st_size for _, found in evidence) < size_bytes:
            return False
        for path, found in evidence:
            if free_bytes >= size_bytes:
                break
            if _removed(path):
                free_bytes += found.st_size
        return free_bytes >= size_bytes

    def _look_at(self, path: Path, found: os.stat_result) -> None:
        if path.suffix == _PART and stat.S_ISREG(found.st_mode):
            # `put` never said yes to it.
            _log.info("partial_result_removed", path=str(path), size_bytes=found.st_size)
            if not _removed(path):
                self._known[path] = None
            return
        if not stat.S_ISREG(found.st_mode) or _NAME.fullmatch(path.name) is None:
            self._move_aside(path, "it is no result of this daemon's")
            return
        decoded = self._read(path, with_artifacts=False)
        if decoded is not None:
            self._known[path] = Spooled(job=decoded.job, slot=decoded.slot, path=path)

    def _read(self, path: Path, *, with_artifacts: bool) -> Decoded | None:
        try:
            # Neither a link nor a pipe that took the file's place is followed or waited for.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                return decode(file, with_artifacts=with_artifacts)
        except UnreadableError as error:
            self._move_aside(path, str(error))
        except FileNotFoundError:
            self._known.pop(path, None)
        except OSError as error:
            # It may be readable later.
            self._say(f"{path}: {error.strerror or error}")
        return None

    def _move_aside(self, path: Path, reason: str) -> None:
        self._known.pop(path, None)
        target = self._aside / path.name
        number = 0
        while os.path.lexists(target):
            number += 1
            target = self._aside / f"{path.name}.{number}"
        _log.error("spool_file_set_aside", path=str(target), reason=reason)
        try:
            _make(self._aside)
            path.rename(target)
        except OSError as error:
            self._known[path] = None
            _log.error("spool_file_not_moved", path=str(path), error=str(error))
        self._trim_evidence()

    def _trim_evidence(self) -> None:
        evidence = sorted(_entries(self._aside), key=lambda entry: entry[1].st_mtime_ns)
        excess_bytes = sum(found.st_size for _, found in evidence) - int(self.max_bytes * _ASIDE_SHARE)
        for path, found in evidence:
            if excess_bytes <= 0:
                return
            if _removed(path):
                excess_bytes -= found.st_size

    def _say(self, trouble: str) -> None:
        """Log what keeps the spool from working, once until it works."""
        if trouble not in self._said:
            self._said.add(trouble)
            _log.error("spool_failed", reason=trouble)


def _entries(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The entries of a directory, without the evidence; none if it cannot be read."""
    with suppress(OSError), os.scandir(directory) as found:
        for entry in found:
            if entry.name != ASIDE:
                with suppress(OSError):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)


def _make(directory: Path) -> None:
    """Make sure that a directory exists and that only its owner can read it."""
    is_new = not directory.is_dir()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    if is_new:
        sync_directory(directory.parent)


def _write(path: Path, content: Content) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for part in content.parts:
            left = memoryview(part)
            while left:
                left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _removed(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
