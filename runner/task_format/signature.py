"""The arguments that generate_input takes, read off the source of a task. Pure: nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runner.task_format.model import REFERENCE, Case
from runner.task_format.problems import nearest

_FUNCTION = "generate_input"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The names of a function's arguments."""

    names: tuple[str, ...]
    required: frozenset[str]
    #: Whether it takes any other name, too.
    open: bool

    def problems(self, case: Case, given: frozenset[str]) -> Iterator[tuple[str, str, str]]:
        """Each wrong argument of a case: name, what was found, what is expected. `given`: come from the judge."""
        for name in case:
            if name not in self.names and not self.open:
                yield name, f"no such argument of {_FUNCTION}", nearest(name, self.names)
        for name in self.names:
            if name in self.required and name not in case and name not in given:
                yield name, "nothing", f"a value: {_FUNCTION} has no default for it"


def signature_of(
    files: Mapping[str, str], file: str = REFERENCE, function: str = _FUNCTION, depth: int = 0
) -> Signature | None:
    """What a function of a task's files takes, generate_input if not said; None: the source alone does not tell."""
    try:
        tree = ast.parse(files.get(file, ""))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # `task check`, which runs it, says more.
        return None
    bindings = [node for node in ast.walk(tree) if _binds(node, function)]
    if len(bindings) != 1 or bindings[0] not in tree.body:
        return None
    match bindings[0]:
        case ast.FunctionDef(decorator_list=[], args=arguments):
            return _of(arguments)
        case ast.ImportFrom(module=str(module), level=0 | 1, names=names) if depth < len(files):
            imported = next((each.name for each in names if (each.asname or each.name) == function), function)
            return signature_of(files, f"{module.replace('.', '/')}.py", imported, depth + 1)
    return None


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a statement gives the name a meaning."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name == name
        case ast.Import() | ast.ImportFrom():
            return any((each.asname or each.name) in (name, "*") for each in node.names)
        case ast.Name(id=identifier, ctx=ast.Store() | ast.Del()):
            return identifier == name
    return False


def _of(arguments: ast.arguments) -> Signature:
    positional = arguments.args
    without_default = positional[: len(positional) - len(arguments.defaults)] if not arguments.posonlyargs else []
    keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return Signature(
        names=tuple(each.arg for each in (*positional, *arguments.kwonlyargs)),
        required=frozenset(
            [each.arg for each in without_default] + [each.arg for each, default in keyword if default is None]
        ),
        open=arguments.kwarg is not None,
    )
