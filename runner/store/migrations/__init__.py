"""The versions of the tables, as an alembic environment in package data; run by `runner.store.migrate` only.

Forward-only. A revision in `versions/` executes SQL files of `sql/`; a released file is never edited, a change is a new
revision. Everything runs in one transaction that the caller opened. Functions and views lie in `runner/store/schema`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic.config import Config
from alembic.script import ScriptDirectory

#: Where the version of a database is recorded: `runner.migration`.
VERSION_TABLE: Final = {"version_table": "migration", "version_table_schema": "runner"}


def config() -> Config:
    """Alembic's configuration, without an alembic.ini."""
    made = Config()
    # A percent sign in the path would be read as an interpolation.
    made.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return made


def versions() -> tuple[str, ...]:
    """The names of all versions that this release knows, oldest first."""
    script = ScriptDirectory.from_config(config())
    return tuple(reversed([revision.revision for revision in script.walk_revisions()]))
