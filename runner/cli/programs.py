"""Programs of ours in a container built like a submission's, for `check`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.base.errors import EvaluationError
from runner.base.gpu_types import GpuType
from runner.base.model import Slot
from runner.evaluation.container_spec import make_spec
from runner.evaluation.context import Environment, Place
from sandbox.host.container import ContainerReport
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import binds, stage
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Boot


def host_environment(engine: DockerEngine, *, eval_python: Path, state_dir: Path) -> Environment:
    """The host's own root file system.

    Raises:
        SandboxError: the engine refuses it, or this host's files make none.
    """
    root = HostRoot(eval_python=eval_python)
    staged = binds(stage(state_dir / "stage", {}))
    return Environment(
        image=engine.ensure_host_root(root),
        python=root.python,
        binds=(*root.binds(), *staged),
        cgroup_parent=engine.check().slice,
    )


def run_programs(
    engine: DockerEngine,
    environment: Environment,
    gpu: GpuType,
    slot: Slot,
    *,
    steps: Sequence[Step],
    files: Mapping[str, bytes],
    wall_s: float,
) -> ContainerReport:
    """Run programs as the worker's user, in a container that was attested as a submission's is.

    Raises:
        SandboxError: the engine would not start the container.
        EvaluationError: the container broke.
    """
    labels = {"kernel-runner.job": "check"}
    spec = make_spec(
        Place(gpu=gpu, slot=slot, environment=environment), Boot(kind="steps"), wall_s=wall_s, labels=labels
    )
    with engine.start(spec) as container:
        report = container.run(
            StepsRequest(files=files, steps=tuple(steps)), on_progress=None, cancel=threading.Event()
        )
    if not report.ok:
        raise EvaluationError(report.message or report.outcome.detail or f"the container ended {report.outcome.ending}")
    return report
