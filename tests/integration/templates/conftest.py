"""A task's files in a folder, with a template as the submission."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.task_format.model import SUBMISSION, TaskFolder


@pytest.fixture
def laid_out(tmp_path: Path) -> Callable[[TaskFolder, str], Path]:
    """Writes a task's files and a submission side by side; the folder."""

    def write(folder: TaskFolder, code: str) -> Path:
        directory = tmp_path / "task"
        directory.mkdir()
        for name, text in folder.task.files.items():
            (directory / name).write_text(code if text == SUBMISSION else text, encoding="utf-8")
        return directory

    return write
