"""Names are nouns: what a variable holds, not that it was found, known, made, told, wanted or said."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_BANNED: Final = frozenset({"found", "known", "made", "told", "wanted", "said"})


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.MatchAs(name=str(name)):
                yield node.lineno, name


def test_names_are_nouns() -> None:
    """Row, job, lease, ids: whoever reads a line learns what the thing is."""
    paths = [path for part in ("runner", "sandbox", "tasks") for path in (_ROOT / part).rglob("*.py")]
    named = [
        f"{path.relative_to(_ROOT)}:{line}: {name}"
        for path in paths
        for line, name in _names(ast.parse(path.read_text(encoding="utf-8")))
        if name.lstrip("_") in _BANNED
    ]
    assert named == []
