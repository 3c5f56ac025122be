"""Migrations under way: versions that no release has, applied one after the other while daemons and frontends work.

Each adds a table, changes the table of jobs, and has an index built again. So it takes the locks of a migration,
replaces all functions and views, and builds an index beside those that write.
"""

from __future__ import annotations

import queue
import re
import shutil
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self
from unittest.mock import patch

from runner.base.errors import DatabaseUnavailableError
from runner.store import migrate, schema

#: What differs from error to error.
_WHY: Final = re.compile(r"socket \"[^\"]*\"|process \d+|\d+")
_MIGRATION: Final = """\
CREATE TABLE runner.storm_{number} (id bigint PRIMARY KEY);
ALTER TABLE runner.job ADD COLUMN storm_{number} integer NOT NULL DEFAULT {number};
DROP INDEX IF EXISTS runner.job_report_idx;
"""
#: Before a migration is begun again, as a person would.
_PAUSE_S: Final = 3.0


class Upgrades:
    """Migrates in a thread of its own, again and again until it is done. Use as a context manager, one at a time."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-runner-chaos-versions-"))
        self._stack = ExitStack()
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upgrades", daemon=True)
        self._asked_for = 0
        #: Versions that are applied, and why tries failed.
        self.done = 0
        self.failed: Counter[str] = Counter()
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        for name, text in schema.migrations().items():
            (self._folder / f"{name}.sql").write_text(text, encoding="utf-8")
        self._stack.enter_context(patch.object(schema, "MIGRATIONS", self._folder))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._asked.put(None)
        self._thread.join()
        self._stack.close()

    def begin(self) -> None:
        """Ask for one more version; does not wait until it is applied."""
        self._asked_for += 1
        self._asked.put(self._asked_for)

    @property
    def finished(self) -> bool:
        """Whether all versions that were asked for are applied, or one failed for good."""
        return self.error is not None or self.done == self._asked_for

    def _run(self) -> None:
        try:
            while (number := self._asked.get()) is not None:
                name = f"9{number:03}_storm"
                (self._folder / f"{name}.sql").write_text(_MIGRATION.format(number=number), encoding="utf-8")
                while not self._stop.is_set() and not self._migrated():
                    self._stop.wait(_PAUSE_S)
                self.done += 1
        except Exception as error:  # noqa: BLE001 - handed to the storm, which fails with it
            self.error = error

    def _migrated(self) -> bool:
        """One try; False: the server went away, or others kept what was needed."""
        try:
            migrate(self._url)
        except DatabaseUnavailableError as error:
            self.failed[_WHY.sub("", str(error)).splitlines()[0][:100]] += 1
            return False
        return True
