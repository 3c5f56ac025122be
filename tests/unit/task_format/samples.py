"""A small valid task on disk, and ways to spoil it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.base.errors import TaskError
from runner.task_format import load_folder

TASK: Mapping[str, Any] = {
    "files": [
        {"name": "submission.py", "source": "@SUBMISSION@"},
        {"name": "reference.py", "source": "reference.py"},
        {"name": "eval.py", "source": "../eval.py"},
    ],
    "lang": "py",
    "description": "Add.",
    "config": {"main": "eval.py"},
    "tests": [{"size": 1, "seed": 2}, {"size": 3, "seed": 4}, {"size": 5, "seed": 6}],
    "benchmarks": [{"size": 7, "seed": 8}],
}

CU: Mapping[str, Any] = {
    **TASK,
    "lang": "cu",
    "files": [
        {"name": "submission.cuh", "source": "@SUBMISSION@"},
        {"name": "eval.cu", "source": "eval.cu"},
        {"name": "util.h", "source": "eval.cu"},
    ],
    "config": {"sources": ["eval.cu"]},
}


def write(
    parent: Path,
    task: Mapping[str, Any] | str = TASK,
    *,
    extra: Mapping[str, Any] | str | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write the task to `parent/adder`, beside `parent/eval.py`; returns the folder."""
    folder = parent / "adder"
    folder.mkdir(parents=True)
    texts: dict[str, str | bytes] = {
        "../eval.py": "# eval program\n",
        "reference.py": "# reference\n",
        "eval.cu": "// program\n",
        "task.yml": task if isinstance(task, str) else yaml.safe_dump(dict(task), sort_keys=False),
        **(files or {}),
    }
    if extra is not None:
        texts["runner.yml"] = extra if isinstance(extra, str) else yaml.safe_dump(dict(extra), sort_keys=False)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def changed(base: Mapping[str, Any] = TASK, **keys: object) -> dict[str, Any]:
    """A copy of the task with other values for some keys."""
    return {**copy.deepcopy(dict(base)), **keys}


def refusal(folder: Path) -> str:
    """The message with which the folder is refused, without the temporary directory's own path."""
    with pytest.raises(TaskError) as caught:
        load_folder(folder)
    return str(caught.value).replace(f"{folder.parent}/", "")
