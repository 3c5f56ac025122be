"""The stored forms of a task: KernelBot's JSON in `leaderboard.leaderboard.task`, ours in `runner.board.extra`. Pure.

jsonb returns keys in an order of its own (by length, then bytes). This module does not depend on the order, and spec
lines have the order of the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from runner.base.errors import TaskError
from runner.base.model import Json
from runner.task_format.build import build_task
from runner.task_format.model import HARNESS, CuConfig, Extra, Harness, Lang, PyConfig, Task, Validation
from runner.task_format.problems import lines_of, refuse, validate
from runner.task_format.schema import StoredProgramDocument, StoredTaskDocument

_CONFIGS: Mapping[str, type[PyConfig | CuConfig]] = {Lang.PY: PyConfig, Lang.CU: CuConfig}


def to_stored(task: Task) -> dict[str, Any]:
    """The JSON of a task: exactly KernelBot's keys, with defaults, without the content of runner.yml."""
    return {
        "lang": task.lang.value,
        "files": dict(task.files),
        "config": _plain(asdict(task.config)),
        "libraries": list(task.libraries),
        "tests": _plain(task.tests),
        "benchmarks": _plain(task.benchmarks),
        "test_timeout": task.test_timeout_s,
        "benchmark_timeout": task.benchmark_timeout_s,
        "ranked_timeout": task.ranked_timeout_s,
        "ranking_by": task.ranking_by.value,
        "seed": task.seed,
        "multi_gpu": task.multi_gpu,
        # Older releases of KernelBot read no task that has this key.
        **({} if task.validation is None else {"validation": task.validation}),
    }


def extra_to_stored(extra: Extra) -> dict[str, Any]:
    """The JSON of runner.yml. It has only keys that are set: a task without runner.yml has an empty object."""
    stored: dict[str, Any] = _plain(asdict(extra))
    return {key: value for key, value in stored.items() if value}


def from_stored(task_json: Json, extra_json: Json | None, *, origin: str) -> Task:
    """A task as the database returns it. Keys that `unknown_keys` names are left out.

    Args:
        task_json: `leaderboard.leaderboard.task`, written by KernelBot or by us.
        extra_json: `runner.board.extra`; None for a board that KernelBot made.
        origin: the owner of the task, for messages, e.g. `leaderboard 'vectoradd'`.

    Raises:
        TaskError: one line per problem.
    """
    for value, where in ((task_json, "task"), (extra_json or {}, "extra")):
        if not isinstance(value, Mapping):
            raise TaskError(f"{origin}: {where} is a JSON {type(value).__name__}, expected an object")
    extra_where = f"{origin}: extra"
    try:
        extra = validate(Extra, dict(extra_json or {}), where=extra_where)
    except TaskError as error:
        # No key is left out here, unlike those of a later KernelBot: it may change what is ranked.
        refuse([*lines_of(error), f"{origin}: its runner.yml is not of this release's form: update the leaderboard"])
    current = _current_keys(task_json)
    files = current.get("files")
    judged = extra.harness is Harness.BUILTIN or (isinstance(files, Mapping) and HARNESS in files.values())
    document = validate(StoredTaskDocument if judged else StoredProgramDocument, current, where=origin, prefix="task")
    return build_task(
        document,
        document.files,
        extra,
        where=origin,
        extra_where=extra_where,
        validation=document.validation,
        prefix="task.",
    )


def unknown_keys(task_json: Json) -> Sequence[str]:
    """The keys of a stored task that this release does not know, as paths: a later KernelBot may have written them."""
    keys = [key for key in task_json if key not in StoredTaskDocument.model_fields]
    for name, record in _records(task_json).items():
        own = {field.name for field in fields(record)}
        keys += [f"{name}.{key}" for key in task_json[name] if key not in own]
    return keys


def _records(task_json: Json) -> dict[str, type]:
    """The keys of a stored task whose values are objects of certain keys."""
    records = {"config": _CONFIGS.get(str(task_json.get("lang"))), "validation": Validation}
    return {
        name: record
        for name, record in records.items()
        if record is not None and isinstance(task_json.get(name), Mapping)
    }


def _current_keys(task_json: Json) -> dict[str, Any]:
    """A stored task without the keys that are unknown. An author's file is read strictly; this was read before."""
    current = {key: value for key, value in task_json.items() if key in StoredTaskDocument.model_fields}
    if "config" in _records(current):
        own = {field.name for field in fields(_CONFIGS[current["lang"]])}
        current["config"] = {key: value for key, value in current["config"].items() if key in own}
        defines = current["config"].get("defines")
        if isinstance(defines, Mapping):
            # As KernelBot writes them for the compiler: -DN, which is -DN=1, and -DN=0.5.
            current["config"]["defines"] = {
                name: "1" if value is None else str(value) for name, value in defines.items()
            }
    return current


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """The value in JSON's own types, without keys that are not set."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
