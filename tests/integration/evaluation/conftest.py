"""An evaluator on a real engine, with a warm container for its only slot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from runner.gpu_types import Registry
from sandbox.host.engine import DockerEngine
from tests.unit import samples


@pytest.fixture
def settings(state_dir: Path, eval_python: Path) -> EvaluationSettings:
    """Settings with one warm container."""
    return EvaluationSettings(
        eval_python=eval_python,
        state_dir=state_dir,
        host_name="test-host",
        # Nothing here waits for them: far more than any job takes, on a busy machine too.
        build_timeout_s=300,
        max_run_s=1000,
        warm_containers=1,
    )


@pytest.fixture
def evaluator(docker_engine: DockerEngine, settings: EvaluationSettings) -> Iterator[Evaluator]:
    """An evaluator that has been prepared."""
    made = Evaluator(docker_engine, Registry.load(), settings)
    made.prepare([samples.SLOT])
    yield made
    made.close()
