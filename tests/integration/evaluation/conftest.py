"""An evaluator on a real engine, with a warm container for its only slot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.base.gpu_types import Registry
from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from sandbox.host.engine import DockerEngine
from tests.plugins.engine import readable_directory
from tests.unit import samples


@pytest.fixture
def settings(state_dir: Path, eval_python: Path) -> EvaluationSettings:
    """Settings with one warm container."""
    return _settings(state_dir, eval_python)


@pytest.fixture
def evaluator(docker_engine: DockerEngine, settings: EvaluationSettings) -> Iterator[Evaluator]:
    """An evaluator that has been prepared."""
    with _prepared(docker_engine, settings) as made:
        yield made


@pytest.fixture(scope="module")
def shared_settings(eval_python: Path) -> Iterator[EvaluationSettings]:
    """Settings for all tests of a module."""
    with readable_directory() as directory:
        yield _settings(directory, eval_python)


@pytest.fixture(scope="module")
def shared_evaluator(docker_engine: DockerEngine, shared_settings: EvaluationSettings) -> Iterator[Evaluator]:
    """The same for all tests of a module that leave it as it was: preparing takes seconds."""
    with _prepared(docker_engine, shared_settings) as made:
        yield made


def _settings(state_dir: Path, eval_python: Path) -> EvaluationSettings:
    return EvaluationSettings(
        eval_python=eval_python,
        state_dir=state_dir,
        host_name="test-host",
        # Nothing here waits for them: far more than any job takes, on a busy machine too.
        build_timeout_s=300,
        max_run_s=1000,
        warm_containers=1,
    )


@contextmanager
def _prepared(engine: DockerEngine, settings: EvaluationSettings) -> Iterator[Evaluator]:
    made = Evaluator(engine, Registry.load(), settings)
    made.prepare([samples.SLOT])
    yield made
    made.close()
