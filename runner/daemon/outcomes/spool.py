"""Results on disk that wait for the database: one file per result below one directory, durable and private.

A result is written under another name, synced and renamed, and the directory is synced. So after `put` has returned
True a power cut does not lose it, and no reader sees half of one. A file that cannot be used is removed, with a line in
the log: its job runs again. A full or failing disk is a return value here, never an exception, and never costs a result
that was kept before. Must not know the database, or decide when to commit.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.base.durable import sync_directory
from runner.base.logs import get_logger
from runner.base.model import Job, JobResult
from runner.daemon.outcomes.spool_format import Decoded, UnreadableError, bare, decode, encode

_log = get_logger(__name__)

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


class Spool:
    """The results below a directory, which one process at a time may use. Threadsafe.

    Nothing is claimed while the database is away, or with less than `min_free_gib` on the disk: that bounds it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        #: Files that were read: a result, or None for one that can neither be used nor removed.
        self._files: dict[Path, Spooled | None] = {}
        #: Why nothing can be kept or read; each reason is logged once, until something is kept.
        self._logged: set[str] = set()

    @property
    def count(self) -> int:
        """How many results wait."""
        return len(self.pending())

    def put(self, job: Job, result: JobResult, *, slot: str) -> bool:
        """Keep a result; True: it is on disk. Of a claim that has one already, that one stays.

        A database that lost its last moments gives out the same attempt of a job again. That is another claim.
        False: the disk is full or fails, which is logged.

        Raises:
            TypeError, ValueError: the result holds something that JSON has no word for.
        """
        content = encode(job, result, slot=slot)
        with self._lock:
            waiting = [spooled.job for path, spooled in self._files.items() if spooled is not None and path.exists()]
            if any((other.key, other.started_at) == (job.key, job.started_at) for other in waiting):
                return True
            try:
                path = self._write(job, content)
            except OSError as error:
                self._log_failure(self._directory, error)
                return False
            self._files[path] = Spooled(job=bare(job), slot=slot, path=path)
            self._logged.clear()
        return True

    def pending(self) -> tuple[Spooled, ...]:
        """The results that wait, oldest first."""
        with self._lock:
            paths = self._paths()
            self._files = {path: spooled for path, spooled in self._files.items() if path in paths}
            for path in paths:
                if path not in self._files and (decoded := self._read(path)) is not None:
                    self._files[path] = Spooled(job=decoded.job, slot=decoded.slot, path=path)
            waiting = [spooled for spooled in self._files.values() if spooled is not None]
            return tuple(sorted(waiting, key=lambda spooled: spooled.path.name))

    def load(self, spooled: Spooled) -> JobResult | None:
        """A result that waits. None: not now, because it is gone, damaged, or the disk fails."""
        with self._lock:
            decoded = self._read(spooled.path)
        return None if decoded is None else decoded.result

    def remove(self, spooled: Spooled) -> None:
        """Forget a result: it is committed, is evidence in the database, or will never be accepted."""
        with self._lock:
            self._remove(spooled.path)

    # -- inside: everything below holds the lock ------------------------------------------------------------------

    def _paths(self) -> set[Path]:
        """The files of results; those that are known if the directory cannot be read.

        Half a write is removed: `put` never kept it.
        """
        paths = set()
        try:
            for path in self._directory.iterdir():
                if path.suffix == _PART:
                    with suppress(OSError):
                        path.unlink()
                elif _NAME.fullmatch(path.name):
                    paths.add(path)
        except (FileNotFoundError, NotADirectoryError):
            # Not made yet, or removed by hand.
            return set()
        except OSError as error:
            self._log_failure(self._directory, error)
            paths.update(self._files)
        return paths

    def _write(self, job: Job, content: bytes) -> Path:
        numbers = [int(match[1]) for path in self._paths() if (match := _NAME.fullmatch(path.name))]
        path = self._directory / f"{max(numbers, default=0) + 1:08d}-{job.id}-{job.attempt}.result"
        part = path.with_suffix(_PART)
        try:
            _make(self._directory)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
            sync_directory(self._directory)
        except OSError:
            # The renamed file too: what may not survive a power cut does not count, and must not turn up later.
            for written in (part, path):
                with suppress(OSError):
                    written.unlink(missing_ok=True)
            raise
        return path

    def _read(self, path: Path) -> Decoded | None:
        try:
            return decode(path.read_bytes())
        except UnreadableError as error:
            _log.error("spool_file_unreadable", path=str(path), reason=str(error))
            self._remove(path)
        except FileNotFoundError:
            self._files.pop(path, None)
        except OSError as error:
            # It may be readable later.
            self._log_failure(path, error)
        return None

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            # Delivered once more after a restart, which does no harm; but not again and again until then.
            self._files[path] = None
            _log.warning("spool_file_not_removed", path=str(path), error=str(error))
        else:
            self._files.pop(path, None)

    def _log_failure(self, path: Path, error: OSError) -> None:
        reason = f"{path}: {error.strerror or error}"
        if reason not in self._logged:
            self._logged.add(reason)
            _log.error("spool_failed", reason=reason)


def _make(directory: Path) -> None:
    """Make sure that a directory exists and that only its owner can read it."""
    is_new = not directory.is_dir()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    if is_new:
        sync_directory(directory.parent)
