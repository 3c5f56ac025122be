"""Kinds of groups that guests bring, found by their place below `runner/extras`; the core imports none of them.

`kinds/NAME.py`, with a class `Group`, evaluates the groups whose task says `kind: NAME`. What of a guest runs inside
containers lies in `inside`; each container has it beside the harness, read-only and under the same names as here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import runner
from runner.base.errors import EvaluationError
from runner.evaluation.context import GroupContext
from runner.evaluation.kinds.kind import Kind

_ROOT: Final = Path(runner.__file__).parents[1]


def group(context: GroupContext) -> Kind:
    """A group, by the guest that evaluates its kind.

    Raises:
        EvaluationError: no guest here does; another host may have one.
    """
    job = context.job
    name = job.task["kind"]
    path = _modules().get(name)
    if path is None:
        raise EvaluationError(
            f"job {job.id} is a group of kind {name!r}, which this installation cannot evaluate "
            f"(it has no runner/extras/**/kinds/{name}.py: install a whole release of kernel-runner)"
        )
    kind: Kind = import_module(".".join(path.relative_to(_ROOT).with_suffix("").parts)).Group(context)
    return kind


@cache
def _modules() -> Mapping[str, Path]:
    """Modules by kind; the folders of an installation stay as they are."""
    return {path.stem: path for path in _ROOT.glob("runner/extras/**/kinds/*.py")}


def inside() -> Mapping[str, Path]:
    """What containers have of guests: path there, a file or folder here; with the `__init__` of each package above."""
    folders = sorted(_ROOT.glob("runner/extras/**/inside"))
    above = {parent / "__init__.py" for folder in folders for parent in folder.parents if _ROOT in parent.parents}
    return {path.relative_to(_ROOT).as_posix(): path for path in (*sorted(above), *folders)}
