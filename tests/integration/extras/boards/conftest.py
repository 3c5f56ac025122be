"""Fixtures of the command line tests, for the commands of leaderboards and tasks."""

from __future__ import annotations

from tests.integration.cli.conftest import (
    board,
    call,
    cli,
    docker_host,
    engine,
    evaluation_python,
    store,
    submission_file,
    task_folder,
)
from tests.integration.store.conftest import db

__all__ = [
    "board", "call", "cli", "db", "docker_host", "engine", "evaluation_python", "store", "submission_file",
    "task_folder",
]  # fmt: skip
