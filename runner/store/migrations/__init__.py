"""The versions of the tables, as an alembic environment in package data; run by `runner.store.migrate` only.

Forward-only. A revision in `versions/` executes SQL files of `sql/`; a released file is never edited, a change is a new
revision. Everything runs in one transaction that the caller opened. Functions and views lie in `runner/store/schema`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from alembic.config import Config

#: Where the version of a database is recorded: `runner.migration`.
VERSION_TABLE: Final = {"version_table": "migration", "version_table_schema": "runner"}
#: The line of a script that names its version.
_REVISION: Final = re.compile(r'^revision = "(\w+)"$', re.MULTILINE)


def config() -> Config:
    """Alembic's configuration, without an alembic.ini."""
    # Imported here: daemons and most commands ask for `versions` alone, and the import takes as long as all of theirs.
    from alembic.config import Config

    made = Config()
    # A percent sign in the path would be read as an interpolation.
    made.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return made


def versions() -> tuple[str, ...]:
    """The names of all versions that this release knows, oldest first.

    They are read off the scripts, which are not run for it, in the order of their file names.
    """
    scripts = sorted((Path(__file__).parent / "versions").glob("v*.py"))
    return tuple(_REVISION.findall(script.read_text(encoding="utf-8"))[0] for script in scripts)
