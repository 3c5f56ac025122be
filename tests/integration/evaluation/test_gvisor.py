"""gVisor is a choice of the GPU type: a real submission in a sandbox of that runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.base.config import Config
from runner.base.gpu_types import Registry
from runner.base.model import Verdict
from sandbox.host.engine import DockerEngine
from tests.integration.evaluation.conftest import RIGHT, VECTORADD, evaluate, evaluator_with
from tests.unit import samples


def test_a_gpu_type_with_runtime_runsc_is_served_by_gvisor(
    docker_engine: DockerEngine, settings: Config, tmp_path: Path
) -> None:
    """The submission is accepted, and its result names the runtime."""
    if "runsc" not in docker_engine.check().runtimes:
        pytest.skip("the engine has no runtime runsc: install gVisor and tell the engine of it (make test does)")
    (tmp_path / "CPU.toml").write_text('extends = "CPU"\nname = "CPU"\nruntime = "runsc"\n', encoding="utf-8")
    with evaluator_with(docker_engine, settings, registry=Registry.load(tmp_path), warm_containers=0) as evaluator:
        result = evaluate(evaluator, samples.job_on(VECTORADD, RIGHT))
    assert result.verdict is Verdict.ACCEPTED
    assert result.runs[0].system_info["runner"]["runtime"] == "runsc"
