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

__all__ = [
    "board",
    "call",
    "cli",
    "docker_host",
    "engine",
    "evaluation_python",
    "store",
    "submission_file",
    "task_folder",
]
