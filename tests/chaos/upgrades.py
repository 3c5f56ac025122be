"""Migrations under way: versions that no release has, applied one after the other while daemons and frontends work.

Each adds a table, changes the table of jobs, and has an index built again. So it takes the locks of a migration,
replaces all functions and views, and builds an index beside those that write.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from unittest.mock import patch

from alembic.config import Config

from runner.errors import DatabaseUnavailableError
from runner.store import migrate, migrations

#: What differs from error to error.
_WHY: Final = re.compile(r"socket \"[^\"]*\"|process \d+|\d+")
_VERSION: Final = '''\
"""Version {number} of the storm."""

from alembic import op

revision = "{name}"
down_revision = "{before}"


def upgrade() -> None:
    """Change tables."""
    op.execute("CREATE TABLE runner.storm_{number} (id bigint PRIMARY KEY)")
    op.execute("ALTER TABLE runner.job ADD COLUMN storm_{number} integer NOT NULL DEFAULT {number}")
    op.execute("DROP INDEX IF EXISTS runner.job_report_idx")
'''
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
        self._last = migrations.versions()[-1]
        self._asked_for = 0
        #: Versions that are applied, and why tries failed.
        self.done = 0
        self.failed: Counter[str] = Counter()
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        released = migrations.config

        def config() -> Config:
            made = released()
            locations = (str(Path(migrations.__file__).parent / "versions"), str(self._folder))
            made.set_main_option("path_separator", "os")
            made.set_main_option("version_locations", os.pathsep.join(locations).replace("%", "%%"))
            return made

        self._stack.enter_context(patch.object(migrations, "config", config))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                text = _VERSION.format(number=number, name=name, before=self._last)
                (self._folder / f"v{name}.py").write_text(text, encoding="utf-8")
                while not self._stop.is_set() and not self._migrated():
                    self._stop.wait(_PAUSE_S)
                self._last = name
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
