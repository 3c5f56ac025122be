"""An engine whose daemon.json has settings of a site's for all containers: a real one, with data of its own."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import EngineRefused
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import binds, stage
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Boot, Limits, Owner, SandboxSpec, Tmpfs
from tests.chaos.dockerd import Dockerd
from tests.support.waiting import PATIENCE_S

SETTINGS = json.loads(Path(__file__).with_name("daemon.json").read_text(encoding="utf-8"))


@contextmanager
def engine_with(settings: Mapping[str, Any]) -> Iterator[DockerEngine]:
    """An engine with this daemon.json."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("starting an engine needs root and dockerd: an engine of somebody else's keeps its settings")
    with Dockerd(settings) as dockerd, DockerEngine(dockerd.url, owner="tests-engine-settings") as engine:
        yield engine


def spec_on(engine: DockerEngine, eval_python: Path, folder: Path) -> SandboxSpec:
    """A small container of that engine's."""
    root = HostRoot(eval_python)
    return SandboxSpec(
        image=engine.ensure_host_root(root),
        python=root.python,
        boot=Boot(kind="steps"),
        limits=Limits(wall_s=PATIENCE_S, memory_bytes=256 << 20, pids=64, cpus=(0,)),
        binds=(*root.binds(), *binds(stage(folder, {}))),
        tmpfs=(
            Tmpfs(target="/work", size_bytes=1 << 24, owner=Owner.WORKER),
            Tmpfs(target="/tmp", size_bytes=1 << 24, owner=Owner.ROOT, mode=0o1777),
        ),
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where code is staged."""
    with tempfile.TemporaryDirectory(prefix="kernel-runner-test-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_containers_are_as_their_spec_says(eval_python: Path, folder: Path) -> None:
    """With all settings at once: attested, and a program runs."""
    with engine_with(SETTINGS) as engine:
        spec = spec_on(engine, eval_python, folder)
        step = Step(name="test", argv=(spec.python, "-c", "print(6 * 7)"), timeout_s=PATIENCE_S)
        with engine.start(spec) as container:
            report = container.run(StepsRequest(files={}, steps=(step,)), on_progress=None, cancel=threading.Event())
    assert report.ok, report.message
    assert report.steps[0].stdout == "42\n", report.steps[0].stderr


def test_a_limit_that_submissions_would_meet_is_named_with_its_cause(eval_python: Path, folder: Path) -> None:
    """A submission that dies of it would be blamed."""
    limits = {name: {"Name": name, "Soft": value, "Hard": value} for name, value in {"cpu": 10, "nproc": 16}.items()}
    with engine_with({"default-ulimits": limits}) as engine:
        spec = spec_on(engine, eval_python, folder)
        with pytest.raises(EngineRefused, match=r"Ulimits.*'cpu', 10, 10.*daemon.json sets others as default-ulimits"):
            engine.start(spec)
