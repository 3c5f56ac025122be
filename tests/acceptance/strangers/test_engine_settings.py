"""An engine whose daemon.json has settings of a site's for all containers: a real one, with data of its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import EngineRefused
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.spec import SandboxSpec
from tests.chaos.dockerd import Dockerd
from tests.integration.sandbox.conftest import QUICK, Workshop, converse, workshop

__all__ = ["workshop"]

SETTINGS = json.loads((Path(__file__).parent / "cases" / "engine_settings" / "daemon.json").read_text(encoding="utf-8"))


@contextmanager
def engine_with(
    settings: Mapping[str, Any], workshop: Workshop, eval_python: Path
) -> Iterator[tuple[DockerEngine, SandboxSpec]]:
    """An engine with this daemon.json, and a small container of its own."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("starting an engine needs root and dockerd: an engine of somebody else's keeps its settings")
    with Dockerd(settings) as dockerd, DockerEngine(dockerd.url, owner="tests-engine-settings") as engine:
        yield engine, replace(workshop.spec(), image=engine.ensure_host_root(HostRoot(eval_python)))


def test_containers_are_as_their_spec_says(workshop: Workshop, eval_python: Path) -> None:
    """With all settings at once: attested, and a program runs."""
    with engine_with(SETTINGS, workshop, eval_python) as (engine, spec), engine.start(spec) as container:
        report = converse(container, QUICK)
    assert report.ok, report.message
    assert report.steps[0].exit_code == 0, report.steps[0].stderr


def test_a_limit_that_submissions_would_meet_is_named_with_its_cause(workshop: Workshop, eval_python: Path) -> None:
    """A submission that dies of it would be blamed."""
    limits = {name: {"Name": name, "Soft": value, "Hard": value} for name, value in {"cpu": 10, "nproc": 16}.items()}
    with (
        engine_with({"default-ulimits": limits}, workshop, eval_python) as (engine, spec),
        pytest.raises(EngineRefused, match=r"Ulimits.*'cpu', 10, 10.*daemon.json sets others as default-ulimits"),
    ):
        engine.start(spec)
