"""An evaluator on a real engine, with a warm container for its only slot."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.base.config import Config
from runner.base.gpu_types import Registry
from runner.base.model import Job, JobResult, Slot
from runner.evaluation.evaluate import Evaluator
from runner.task_format import load_folder
from sandbox.host.engine import DockerEngine
from tests.plugins.engine import readable_directory
from tests.plugins.live import ROOT
from tests.support.noise import again_if_noise
from tests.unit import samples

_FOLDER = ROOT / "tasks" / "problems" / "vectoradd"
VECTORADD = load_folder(_FOLDER).task
RIGHT = (_FOLDER / "solutions" / "correct" / "torch_add.py").read_bytes()


@pytest.fixture
def settings(state_dir: Path, eval_python: Path) -> Config:
    """Settings for one test."""
    return settings_of(state_dir, eval_python)


@pytest.fixture
def evaluator(docker_engine: DockerEngine, settings: Config) -> Iterator[Evaluator]:
    """An evaluator that has been prepared."""
    with evaluator_with(docker_engine, settings, [samples.SLOT]) as made:
        yield made


@pytest.fixture(scope="module")
def shared_settings(eval_python: Path) -> Iterator[Config]:
    """Settings for all tests of a module."""
    with readable_directory() as directory:
        yield settings_of(directory, eval_python)


@pytest.fixture(scope="module")
def shared_evaluator(docker_engine: DockerEngine, shared_settings: Config) -> Iterator[Evaluator]:
    """The same for all tests of a module that leave it as it was: preparing takes seconds."""
    with evaluator_with(docker_engine, shared_settings, [samples.SLOT]) as made:
        yield made


def settings_of(state_dir: Path, eval_python: Path) -> Config:
    """Settings with one warm container and no build worker."""
    return Config(
        eval_python=eval_python,
        state_dir=state_dir,
        host_name="test-host",
        # Nothing here waits for them: far more than any job takes, on a busy machine too.
        build_timeout_s=300,
        max_run_s=1000,
        warm_containers=1,
        build_workers=0,
    )


@contextmanager
def evaluator_with(
    engine: DockerEngine,
    settings: Config,
    slots: Sequence[Slot] = (),
    *,
    registry: Registry | None = None,
    **changes: Any,  # noqa: ANN401 fields of the settings
) -> Iterator[Evaluator]:
    """An evaluator with other settings, prepared for slots; without any, what its probe would find is made up."""
    made = Evaluator(engine, registry or Registry.load(), settings.model_copy(update=changes))
    try:
        if slots:
            made.prepare(slots)
        else:
            made._systems["CPU"] = {"hostname": "test-host"}
        yield made
    finally:
        made.close()


def evaluate(evaluator: Evaluator, job: Job, slot: Slot = samples.SLOT) -> JobResult:
    """Its result, without a cancellation."""
    return again_if_noise(lambda: evaluator.run(job, slot, cancel=threading.Event()))
