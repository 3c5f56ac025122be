"""The stored forms of a task: KernelBot's JSON in `leaderboard.leaderboard.task`, ours in `runner.board.extra`. Pure.

jsonb returns keys in an order of its own (by length, then bytes). This module does not depend on the order, and spec
lines have the order of the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from runner.errors import TaskError
from runner.model import Json
from runner.task_format.build import build_extra, build_task
from runner.task_format.model import Case, CaseSet, Extra, Lang, PyConfig, Task
from runner.task_format.problems import validate
from runner.task_format.schema import CuConfigDocument, ExtraDocument, PyConfigDocument, StoredTaskDocument

_CONFIGS: Mapping[str, type[BaseModel]] = {Lang.PY: PyConfigDocument, Lang.CU: CuConfigDocument}


def to_stored(task: Task) -> dict[str, Any]:
    """The JSON of a task: exactly KernelBot's keys, with defaults, without the content of runner.yml."""
    if isinstance(task.config, PyConfig):
        config: dict[str, Any] = {"main": task.config.main}
    else:
        config = {
            "sources": list(task.config.sources),
            "include_dirs": list(task.config.include_dirs),
            "defines": dict(task.config.defines),
            "compile_flags": list(task.config.compile_flags),
        }
    return {
        "lang": task.lang.value,
        "files": dict(task.files),
        "config": config,
        "libraries": list(task.libraries),
        "tests": _cases(task.tests),
        "benchmarks": _cases(task.benchmarks),
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
    stored: dict[str, Any] = {}
    if extra.harness is not None:
        stored["harness"] = extra.harness.value
    if extra.cases:
        stored["cases"] = {gpu: _case_set(cases) for gpu, cases in extra.cases.items()}
    if extra.hidden:
        stored["hidden"] = _cases(extra.hidden)
    if extra.private:
        stored["private"] = list(extra.private)
    if extra.flops is not None:
        stored["flops"] = extra.flops
    if extra.math is not None:
        stored["math"] = extra.math.value
    if extra.bytes is not None:
        stored["bytes"] = extra.bytes
    if extra.written is not None:
        stored["written"] = extra.written
    if extra.timing is not None:
        stored["timing"] = {key: value for key, value in asdict(extra.timing).items() if value is not None}
    return stored


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
    extra = build_extra(validate(ExtraDocument, dict(extra_json or {}), where=extra_where))
    return build_task(document, document.files, extra, where=origin, extra_where=extra_where, prefix="task.")


def unknown_keys(task_json: Json) -> Sequence[str]:
    """The keys of a stored task that this release does not know, as paths: a later KernelBot may have written them."""
    known = _known(task_json)
    config = task_json.get("config")
    inside = [key for key in config if key not in known["config"]] if isinstance(config, Mapping) else []
    return [*(key for key in task_json if key not in known), *(f"config.{key}" for key in inside)]


def _known(task_json: Json) -> dict[str, Any]:
    """A stored task without the keys that are unknown. An author's file is read strictly; this was read before."""
    known = {key: value for key, value in task_json.items() if key in StoredTaskDocument.model_fields}
    document = _CONFIGS.get(str(known.get("lang")))
    if document is not None and isinstance(known.get("config"), Mapping):
        known["config"] = {key: value for key, value in known["config"].items() if key in document.model_fields}
    return known


def _cases(cases: Sequence[Case]) -> list[dict[str, object]]:
    return [
        {name: list(value) if isinstance(value, tuple) else value for name, value in case.items()} for case in cases
    ]


def _case_set(cases: CaseSet) -> Mapping[str, Any]:
    stored: dict[str, Any] = {}
    if cases.tests is not None:
        stored["tests"] = _cases(cases.tests)
    if cases.benchmarks is not None:
        stored["benchmarks"] = _cases(cases.benchmarks)
    if cases.hidden is not None:
        stored["hidden"] = _cases(cases.hidden)
    return stored
