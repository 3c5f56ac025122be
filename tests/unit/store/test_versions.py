"""The versions of the database that this release knows, and which modules may load the library that applies them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from alembic.script import ScriptDirectory

from runner.store import migrations

STORE = Path(migrations.__file__).parents[1]
#: Alembic itself runs them.
LOADED_BY_ALEMBIC = ("migrations/env.py", "migrations/script.py", "migrations/versions/")


def test_the_versions_are_those_of_the_scripts_in_their_order() -> None:
    """What is read off the scripts is what alembic finds when it runs them, and there is one way through them."""
    script = ScriptDirectory.from_config(migrations.config())
    walked = [revision.revision for revision in script.walk_revisions()]
    assert script.get_heads() == walked[:1]
    assert list(migrations.versions()) == walked[::-1]


def test_only_a_migration_loads_sqlalchemy_and_alembic() -> None:
    """They are a third of what the start of any command would cost: functions import them, modules do not."""
    paths = [
        path
        for path in sorted(STORE.rglob("*.py"))
        if not path.relative_to(STORE).as_posix().startswith(LOADED_BY_ALEMBIC)
    ]
    assert STORE / "migrate.py" in paths
    eager = {
        f"{path.relative_to(STORE)}: {name}"
        for path in paths
        for name in _imported_with(ast.parse(path.read_text(encoding="utf-8")))
        if name.split(".")[0] in ("sqlalchemy", "alembic")
    }
    assert eager == set()


def _imported_with(module: ast.Module) -> Iterator[str]:
    """What a module imports when it is imported itself: outside functions, and not for the type checker alone."""
    waiting: list[ast.AST] = list(module.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)
