"""Programs of ours in a container built like a submission's, for `check`: what submissions need, and what they see."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final, Literal

import runner
from runner.base.config import Config
from runner.base.errors import EvaluationError
from runner.base.gpu_types import GpuType
from runner.base.model import Slot
from runner.evaluation.container_spec import make_spec
from runner.evaluation.context import Environment, Place
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import binds, stage
from sandbox.protocol import Step, StepResult, StepsRequest
from sandbox.spec import Boot

#: Seconds for the interpreter of the evaluation environment to import torch: a cold disk is slow.
IMPORT_TIMEOUT_S: Final = 180.0
_COMPILE_TIMEOUT_S: Final = 120.0

_PYTHON_PROBE = """\
import os, pwd, torch
print(f"torch {torch.__version__} as {pwd.getpwuid(os.getuid()).pw_name}")
"""
#: Prints what of ours a submission can read: all below its first argument that is named like our
#: package, and its other arguments.
_OURS_PROBE = """\
import os, sys
mine = [path for path in sys.argv[2:] if os.access(path, os.R_OK)]
for folder, folders, files in os.walk(sys.argv[1]):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
    names = [name for name in (*folders, *files) if name.startswith("kernel_runner-")]
    mine += [path for name in names if os.access(path := os.path.join(folder, name), os.R_OK)]
print("\\n".join(sorted(set(mine))))
"""
_CPP_PROBE = b"#include <vector>\nint main() { return std::vector<int>(3).size() == 3 ? 0 : 1; }\n"
_CUDA_PROBE = b"__global__ void nothing() {}\nint main() { return 0; }\n"


def prove(engine: DockerEngine, config: Config, gpu: GpuType, slot: Slot) -> tuple[StepResult, ...]:
    """Run the probes as the worker's user, in the host's root file system and attested as a submission's container is.

    Raises:
        SandboxError: the engine would not start it, or this host's files make no root file system.
        EvaluationError: the container broke.
        ConfigError: there is no evaluation environment.
    """
    root = HostRoot(eval_python=config.require_eval_python())
    staged = binds(stage(config.state_dir / "stage", {}))
    environment = Environment(
        image=engine.ensure_host_root(root),
        python=root.python,
        binds=(*root.binds(), *staged),
        cgroup_parent=engine.check().slice,
    )
    steps = (
        _step("python", environment.python, "-c", _PYTHON_PROBE),
        _step("ours", environment.python, "-c", _OURS_PROBE, "/", *_own_paths(config)),
        _step("ldconfig", "/sbin/ldconfig", "-p"),
        _step("c++", "c++", "-O1", "-o", "probe", "probe.cpp"),
        _step("nvcc", "nvcc", "--version", continue_if="exit_0"),
        _step("cuda", "nvcc", "-o", "probe-cuda", "probe.cu"),
    )
    spec = make_spec(
        Place(gpu=gpu, slot=slot, environment=environment),
        Boot(kind="steps"),
        wall_s=IMPORT_TIMEOUT_S + len(steps) * _COMPILE_TIMEOUT_S,
        labels={"kernel-runner.job": "check"},
    )
    request = StepsRequest(files={"probe.cpp": _CPP_PROBE, "probe.cu": _CUDA_PROBE}, steps=steps)
    with engine.start(spec) as container:
        report = container.run(request, on_progress=None, cancel=threading.Event())
    if not report.ok:
        raise EvaluationError(report.message or report.outcome.detail or f"the container ended {report.outcome.ending}")
    return report.steps


def _own_paths(config: Config) -> tuple[str, ...]:
    """What the daemon runs from and keeps: no submission needs it, and the tasks have solutions and hidden cases."""
    root = Path(runner.__file__).parents[1]
    paths = (root / "runner", root / "sandbox", root / "tasks", config.state_dir)
    return tuple(str(path.resolve()) for path in paths)


def _step(name: str, *argv: str, continue_if: Literal["always", "exit_0"] = "always") -> Step:
    return Step(name=name, argv=argv, timeout_s=_COMPILE_TIMEOUT_S, result_pipe=False, continue_if=continue_if)
