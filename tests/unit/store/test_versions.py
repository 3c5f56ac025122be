"""The versions of the database that this release knows."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from alembic.script import ScriptDirectory

from runner.store import migrations, schema

#: The newest version, and a digest of the functions and views that it was made for. A daemon refuses a database of an
#: older version, and looks at nothing else.
NEWEST: Final = ("0025_values", "2fd6c4658693a502")


def test_the_versions_are_those_of_the_scripts_in_their_order() -> None:
    """What is read off the scripts is what alembic finds when it runs them, and there is one way through them."""
    script = ScriptDirectory.from_config(migrations.config())
    walked = [revision.revision for revision in script.walk_revisions()]
    assert script.get_heads() == walked[:1]
    assert list(migrations.versions()) == walked[::-1]


def test_a_change_of_functions_or_views_comes_with_a_version() -> None:
    """Else a new daemon would start on a database with the old ones. Comments do not count."""
    code = [" ".join(re.sub("--.*", "", text).split()) for text in schema.objects()]
    found = hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]
    assert (migrations.versions()[-1], found) == NEWEST, (
        "functions or views were changed: add a version to runner/store/migrations/versions, which may be empty, and "
        "put its name and this digest into NEWEST. The digest alone is changed only while no database has that version"
    )
