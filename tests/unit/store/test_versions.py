"""The versions of the database that this release knows."""

from __future__ import annotations

from alembic.script import ScriptDirectory

from runner.store import migrations


def test_the_versions_are_those_of_the_scripts_in_their_order() -> None:
    """What is read off the scripts is what alembic finds when it runs them, and there is one way through them."""
    script = ScriptDirectory.from_config(migrations.config())
    walked = [revision.revision for revision in script.walk_revisions()]
    assert script.get_heads() == walked[:1]
    assert list(migrations.versions()) == walked[::-1]
