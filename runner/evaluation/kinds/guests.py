"""Kinds of jobs that guests bring, found by their place below `runner/extras`; the core imports none of them.

`kinds/NAME.py`, with a class `Group`, evaluates the groups whose task says `kind: NAME`; `kinds/validation.py`, with a
class `Validating`, validations. What of a guest runs inside containers lies in `inside`; each container has it beside
the harness, read-only and under the same names as here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import runner
from runner.base.errors import EvaluationError
from runner.evaluation.context import GroupContext, ValidationContext
from runner.evaluation.kinds.kind import Kind

_ROOT: Final = Path(runner.__file__).parents[1]


def group(context: GroupContext) -> Kind:
    """A group, by the guest that evaluates its kind.

    Raises:
        EvaluationError: no guest here does; another host may have one.
    """
    name = context.job.task["kind"]
    kind: Kind = _class(name, "Group", what=f"job {context.job.id} is a group of kind {name!r}")(context)
    return kind


def validation(context: ValidationContext) -> Kind:
    """A validation.

    Raises:
        EvaluationError: no guest here evaluates any; another host may have one.
        TaskError: the task has none, or one of a form that this release does not know.
    """
    kind: Kind = _class("validation", "Validating", what=f"job {context.job.id} is a validation")(context)
    return kind


def _class(kind: str, name: str, *, what: str) -> type[Any]:
    module = import_module(_modules()[kind]) if kind in _modules() else None
    if not hasattr(module, name):
        raise EvaluationError(
            f"{what}, which this installation cannot evaluate (it has no runner/extras/**/kinds/{kind}.py with a class "
            f"{name}: install a whole release of kernel-runner)"
        )
    implementation: type[Any] = getattr(module, name)
    return implementation


@cache
def _modules() -> Mapping[str, str]:
    """Modules by kind; the folders of an installation stay as they are."""
    paths = _ROOT.glob("runner/extras/**/kinds/*.py")
    return {path.stem: ".".join(path.relative_to(_ROOT).with_suffix("").parts) for path in paths}


def inside() -> Mapping[str, Path]:
    """What containers have of guests: path there, a file or folder here; with the `__init__` of each package above."""
    folders = sorted(_ROOT.glob("runner/extras/**/inside"))
    above = {parent / "__init__.py" for folder in folders for parent in folder.parents if _ROOT in parent.parents}
    return {path.relative_to(_ROOT).as_posix(): path for path in (*sorted(above), *folders)}
