"""Fixtures of the command line tests: a migrated database in the environment, task folders, a way to call a command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from runner.cli import main
from runner.extras.boards.store import BoardStore

REFERENCE = (
    "def generate_input(n, seed):\n    return n\n\n\ndef check_implementation(data, output):\n    return True, ''\n"
)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:  # noqa: ANN401 any JSON
        """What it printed, as JSON."""
        return json.loads(self.out)


Call = Callable[..., Said]

_ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def evaluation_python() -> Path:
    """The interpreter of the evaluation environment, as the surroundings name it."""
    return Path(os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(_ROOT / ".venv-eval" / "bin" / "python")))


@pytest.fixture(scope="session")
def docker_host() -> str | None:
    """The engine that the surroundings name; None for the default socket."""
    return os.environ.get("DOCKER_HOST")


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    evaluation_python: Path,
    docker_host: str | None,
) -> Iterator[Call]:
    """Runs `kernel-runner` in this process, with no settings but those of the test (the two above are read before)."""
    for name in os.environ:
        if name.startswith("KERNEL_RUNNER_") or name in ("DATABASE_URL", "DOCKER_HOST"):
            monkeypatch.delenv(name)

    def run(*arguments: object, database: str | None = None) -> Said:
        if database is not None:
            monkeypatch.setenv("DATABASE_URL", database)
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Said(code=int(code), out=captured.out, err=captured.err)

    yield run
    # The command has pointed the log at a stream that ends with the test.
    structlog.reset_defaults()


@pytest.fixture
def engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: Call, evaluation_python: Path, docker_host: str | None
) -> None:
    """Commands find the surroundings' engine and evaluation environment, and have a state directory of their own."""
    del call  # It has removed the settings that were there.
    monkeypatch.setenv("KERNEL_RUNNER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("KERNEL_RUNNER_EVAL_PYTHON", str(evaluation_python))
    if docker_host is not None:
        monkeypatch.setenv("DOCKER_HOST", docker_host)


@pytest.fixture
def cli(call: Call, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Like `call`, with a migrated database."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    return call


@pytest.fixture
def store(database_url: str) -> Iterator[BoardStore]:
    """The same database from the other side."""
    boards = BoardStore(database_url, application_name="test")
    yield boards
    boards.close()


def write_task(folder: Path, **keys: object) -> Path:
    """A task folder with the built-in harness, two tests, one benchmark and a Python template."""
    folder.mkdir(parents=True)
    task = {
        "files": [
            {"name": "submission.py", "source": "@SUBMISSION@"},
            {"name": "reference.py", "source": "reference.py"},
            {"name": "eval.py", "source": "@HARNESS@"},
        ],
        "lang": "py",
        "description": "Give back what you get.",
        "config": {"main": "eval.py"},
        "tests": [{"n": 4, "seed": 1}, {"n": 8, "seed": 2}],
        "benchmarks": [{"n": 16, "seed": 3}],
        "templates": {"Python": "template.py"},
        "gpus": ["CPU"],
        **keys,
    }
    (folder / "task.yml").write_text(yaml.safe_dump({key: value for key, value in task.items() if value is not None}))
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "template.py").write_text("def custom_kernel(data):\n    return data\n")
    return folder


@pytest.fixture
def task_folder(tmp_path: Path) -> Path:
    """A valid task folder named `echo`."""
    return write_task(tmp_path / "echo")


@pytest.fixture
def submission_file(tmp_path: Path) -> Path:
    """A file that is worth submitting."""
    path = tmp_path / "mine.py"
    path.write_text("def custom_kernel(data):\n    return data\n")
    return path


@pytest.fixture
def board(cli: Call, task_folder: Path) -> str:
    """A published leaderboard on the CPU type."""
    assert cli("leaderboard", "create", task_folder, "--name", "echo").code == 0
    return "echo"
