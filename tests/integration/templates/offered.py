"""The tasks' templates, and what the GPU types compile them for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from runner.base.gpu_types import Registry, Vendor
from runner.task_format import load_folder
from runner.task_format.model import TaskFolder

TASKS: Final = Path(__file__).resolve().parents[3] / "tasks" / "problems"


def with_template(language: str) -> Sequence[TaskFolder]:
    """The tasks that have a template in a language."""
    return [folder for folder in _folders() if language in folder.templates]


@cache
def _folders() -> Sequence[TaskFolder]:
    return [load_folder(path.parent) for path in sorted(TASKS.glob("*/task.yml"))]


def architectures(folder: TaskFolder) -> Sequence[str]:
    """Those of the GPU types that a task is offered on: nvcc's (90a) and AMD's (gfx942), each once."""
    registry = Registry.load()
    types = [entry for entry in map(registry.get, folder.gpus) if entry.vendor is not Vendor.NONE]
    named = [entry.nvcc_arch or entry.environment.get("PYTORCH_ROCM_ARCH") for entry in types]
    assert None not in named, f"a GPU type of {folder.name} names no architecture"
    return list(dict.fromkeys(name for name in named if name is not None))
