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
from runner.task_format.model import CuConfig, Extra, Lang, PyConfig, Task
from runner.task_format.problems import validate
from runner.task_format.schema import StoredTaskDocument

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
    for found, where in ((task_json, "task"), (extra_json or {}, "extra")):
        if not isinstance(found, Mapping):
            raise TaskError(f"{origin}: {where} is a JSON {type(found).__name__}, expected an object")
    document = validate(StoredTaskDocument, _known(task_json), where=origin, prefix="task")
    extra_where = f"{origin}: extra"
    extra = validate(Extra, dict(extra_json or {}), where=extra_where)
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
    known = _known(task_json)
    config = task_json.get("config")
    inside = [key for key in config if key not in known["config"]] if isinstance(config, Mapping) else []
    return [*(key for key in task_json if key not in known), *(f"config.{key}" for key in inside)]


def _known(task_json: Json) -> dict[str, Any]:
    """A stored task without the keys that are unknown. An author's file is read strictly; this was read before."""
    known = {key: value for key, value in task_json.items() if key in StoredTaskDocument.model_fields}
    config = _CONFIGS.get(str(known.get("lang")))
    if config is not None and isinstance(known.get("config"), Mapping):
        keys = {field.name for field in fields(config)}
        known["config"] = {key: value for key, value in known["config"].items() if key in keys}
    return known


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """The value in JSON's own types, without keys that are not set."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
