"""Fixtures for tests whose subject is a real container: the engine and the evaluation environment."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.errors import SandboxError
from sandbox.host.engine import DockerEngine
from tests.support.warm_python import warm_python

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A connected engine with an owner label of its own; whatever carries that label is gone afterwards."""
    engine = DockerEngine(owner=f"tests-{uuid.uuid4().hex[:12]}")
    try:
        engine.check()
    except SandboxError as error:
        pytest.fail(f"these tests need a container engine (make test starts one): {error}", pytrace=False)
    yield engine
    engine.reap()
    engine.close()


@pytest.fixture(scope="session")
def eval_python() -> Path:
    """The interpreter of the evaluation environment: KERNEL_RUNNER_EVAL_PYTHON, or .venv-eval of this repository."""
    path = Path(os.environ.get("KERNEL_RUNNER_EVAL_PYTHON") or REPOSITORY / ".venv-eval" / "bin" / "python")
    if not path.is_file():
        pytest.fail(
            f"these tests need an evaluation environment with torch, found no {path};"
            " make test makes one, or set KERNEL_RUNNER_EVAL_PYTHON",
            pytrace=False,
        )
    return path


@pytest.fixture(scope="session")
def warm_eval_python(eval_python: Path) -> Iterator[Path]:
    """The same with torch imported, once for all tests."""
    # Of a short path, as sockets need it.
    with tempfile.TemporaryDirectory(prefix="kernel-runner-") as folder, warm_python(eval_python, Path(folder)) as warm:
        yield warm


@contextmanager
def readable_directory() -> Iterator[Path]:
    """A directory the engine's containers can read from; removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="kernel-runner-test-", dir="/var/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """A directory the engine's containers can read from."""
    with readable_directory() as directory:
        yield directory
