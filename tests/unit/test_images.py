"""OCI images: the interpreter that a GPU type names is the one its containers run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from runner.gpu_types import Registry
from sandbox.host.engine import DockerEngine, EngineFacts
from sandbox.spec import DeviceDriver
from tests.unit import samples

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted((ROOT / "sandbox" / "image").glob("Dockerfile.*"))


class ImageEngine:
    """An engine that has every image."""

    def check(self) -> EngineFacts:
        """A plain engine."""
        return EngineFacts(
            name="e",
            version="28",
            api_version="1.48",
            runtimes=("runc",),
            cgroup_version="2",
            cgroup_driver="systemd",
            storage_driver="overlay2",
            rootless=False,
            cdi={"nvidia.com/gpu=0": ("/dev/nvidia0",)},
        )

    def image_id(self, reference: str) -> str:
        """The id of an image."""
        return f"sha256:{reference}"


def test_an_image_runs_the_interpreter_its_type_names(tmp_path: Path) -> None:
    """`image` and `image_python` reach the container's spec; the host's own environment does not."""
    settings = EvaluationSettings(
        eval_python=Path("/host/python"), state_dir=tmp_path, host_name="h", build_timeout_s=1, max_run_s=1
    )
    evaluator = Evaluator(cast("DockerEngine", ImageEngine()), Registry.load(), settings)
    gpu = replace(samples.H100, image="cuda", image_python="/own/bin/python")
    environment = evaluator._environment(gpu)
    assert (environment.image, environment.python) == ("sha256:cuda", "/own/bin/python")
    assert [bind.target for bind in environment.binds] == ["/kernel-runner"]
    assert environment.cdi == {"nvidia.com/gpu=0": ("/dev/nvidia0",)}
    assert environment.device_driver is DeviceDriver.NVIDIA
    amd = evaluator._environment(replace(samples.MI300, image="rocm"))
    assert amd.device_driver is DeviceDriver.NODES


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_the_shipped_dockerfiles_put_torch_where_types_look_for_it(dockerfile: Path) -> None:
    """The default of `image_python` is the environment that each of them makes."""
    environment = Path(samples.H100.image_python).parents[1]
    text = dockerfile.read_text(encoding="utf-8")
    assert f"python3 -m venv {environment}" in text
    assert f'{environment}/bin/pip install --no-cache-dir ${{TORCH:+torch==${{TORCH}}}} "numpy>=2"' in text


def test_there_are_dockerfiles_for_every_vendor() -> None:
    """CPU, CUDA and ROCm."""
    assert [path.suffix for path in DOCKERFILES] == [".cpu", ".cuda", ".rocm"]
