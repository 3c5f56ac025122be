"""gVisor is a choice of the GPU type: a real submission in a sandbox of that runtime."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from runner.base.gpu_types import Registry
from runner.base.model import Mode, Verdict
from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from runner.task_format import extra_to_stored, load_folder, to_stored
from sandbox.host.engine import DockerEngine
from tests.plugins.live import ROOT
from tests.unit import samples

VECTORADD = ROOT / "tasks" / "problems" / "vectoradd"


def test_a_gpu_type_with_runtime_runsc_is_served_by_gvisor(
    docker_engine: DockerEngine, settings: EvaluationSettings, state_dir: Path
) -> None:
    """The submission is accepted, and its result names the runtime."""
    if "runsc" not in docker_engine.check().runtimes:
        pytest.skip("the engine has no runtime runsc: install gVisor and tell the engine of it (make test does)")
    gpus = state_dir / "gpus.d"
    gpus.mkdir()
    (gpus / "CPU.toml").write_text('extends = "CPU"\nname = "CPU"\nruntime = "runsc"\n', encoding="utf-8")
    task = load_folder(VECTORADD).task
    code = (VECTORADD / "solutions" / "correct" / "torch_add.py").read_bytes()
    job = replace(samples.job(mode=Mode.TEST, code=code), task=to_stored(task), extra=extra_to_stored(task.extra))
    evaluator = Evaluator(docker_engine, Registry.load(gpus), replace(settings, warm_containers=0))
    try:
        result = evaluator.run(job, samples.SLOT, cancel=threading.Event())
    finally:
        evaluator.close()
    assert result.verdict is Verdict.ACCEPTED
    runner = result.runs[0].system_info["runner"]
    assert isinstance(runner, dict)
    assert runner["runtime"] == "runsc"
