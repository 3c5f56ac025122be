"""A recipe is really built from a base made here, without a network; a real submission runs in the result."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from runner.base.gpu_types import Registry
from runner.base.model import Mode, Verdict
from runner.evaluation.evaluate import Evaluator
from runner.task_format import extra_to_stored, load_folder, to_stored
from sandbox.errors import EngineRefused
from sandbox.host.engine import Container, DockerEngine
from sandbox.spec import Bind, SandboxSpec
from tests.integration.evaluation.conftest import settings_of
from tests.plugins.images import PYTHON, download
from tests.plugins.live import ROOT
from tests.unit import samples

VECTORADD = ROOT / "tasks" / "problems" / "vectoradd"
#: The whole recipe, which takes minutes; else everything but torch is installed, and torch is bound.
WHOLE = os.environ.get("KERNEL_RUNNER_TEST_IMAGES") == "all"
SITE_PACKAGES = f"lib/python{PYTHON}/site-packages"


@pytest.fixture
def tag(docker_engine: DockerEngine) -> Iterator[str]:
    """A name that no other image has; it is gone afterwards."""
    name = f"kernel-runner-test/{uuid.uuid4().hex[:12]}:latest"
    yield name
    with suppress(EngineRefused):
        docker_engine._call("untag", lambda api: api.remove_image(name))


def build(engine: DockerEngine, kind: str, *, tag: str, wheels: Path, folder: Path, **arguments: str) -> str:
    """Build a recipe without a network, as `docker build` does, beside a folder of wheels; the image's id."""
    context = folder / "image"
    shutil.copytree(ROOT / "sandbox" / "image", context)
    shutil.copytree(wheels, context / "wheels")
    steps = engine._call(
        "build",
        lambda api: list(
            api.build(
                path=str(context),
                dockerfile=f"Dockerfile.{kind}",
                tag=tag,
                buildargs={"PIP_NO_INDEX": "1", **arguments},
                network_mode="none",
                rm=True,
                decode=True,
            )
        ),
        timeout_s=1800,
    )
    assert not [step for step in steps if "error" in step], steps[-15:]
    return engine.image_id(tag)


class BoundEngine(DockerEngine):
    """Lays the packages of the evaluation environment over those of the image."""

    def start(self, spec: SandboxSpec, *, wait_for_cores: Callable[[], None] = lambda: None) -> Container:
        """See DockerEngine."""
        packages = Bind(source=str(ROOT / ".venv-eval" / SITE_PACKAGES), target=f"/opt/environment/{SITE_PACKAGES}")
        return super().start(replace(spec, binds=(*spec.binds, packages)), wait_for_cores=wait_for_cores)


@pytest.mark.timeout(1800)
def test_a_submission_runs_in_an_image_of_a_recipe(  # noqa: PLR0917 fixtures
    docker_engine: DockerEngine,
    debian_image: str,
    wheels: Path,
    state_dir: Path,
    eval_python: Path,
    tag: str,
    tmp_path: Path,
) -> None:
    """Its result names the image's id."""
    gpus = state_dir / "gpus.d"
    gpus.mkdir()
    packages = Path(download("torch", "torch==2.13.0", "numpy>=2", "ninja", "setuptools")) if WHOLE else wheels
    given = {"BASE": debian_image, **({} if WHOLE else {"TORCH": ""})}
    image_id = build(docker_engine, "cpu", tag=tag, wheels=packages, folder=tmp_path, **given)
    (gpus / "CPU.toml").write_text(f'extends = "CPU"\nname = "CPU"\nimage = "{image_id}"\n', encoding="utf-8")
    assert _evaluate(docker_engine, state_dir, eval_python) == (Verdict.ACCEPTED, image_id)


def _evaluate(engine: DockerEngine, state_dir: Path, eval_python: Path) -> tuple[Verdict, str]:
    """The verdict of an honest submission in the image that GPU type CPU names, and the image its result names."""
    kind = DockerEngine if WHOLE else BoundEngine
    if not WHOLE and not (ROOT / ".venv-eval" / SITE_PACKAGES / "torch").is_dir():
        pytest.skip(f"torch cannot be bound: .venv-eval is not of Python {PYTHON}, as the base image is")
    task = load_folder(VECTORADD).task
    code = (VECTORADD / "solutions" / "correct" / "torch_add.py").read_bytes()
    job = replace(samples.job(mode=Mode.TEST, code=code), task=to_stored(task), extra=extra_to_stored(task.extra))
    settings = settings_of(state_dir, eval_python).model_copy(update={"warm_containers": 0})
    with kind(engine.base_url, owner=engine.owner) as own:
        evaluator = Evaluator(own, Registry.load(state_dir / "gpus.d"), settings)
        try:
            result = evaluator.run(job, samples.SLOT, cancel=threading.Event())
        finally:
            evaluator.close()
    runner = result.runs[0].system_info["runner"]
    assert isinstance(runner, dict)
    return result.verdict, str(runner["image"])


@pytest.mark.timeout(1800)
def test_the_recipe_for_cuda_has_the_headers(
    docker_engine: DockerEngine, debian_image: str, wheels: Path, tag: str, tmp_path: Path
) -> None:
    """Built on a Debian, without torch and the vendor's toolkit."""
    folder = tmp_path / "wheels"
    shutil.copytree(wheels, folder)
    version = "".join(
        f"#define CUTLASS_{name} {number}\n" for name, number in (("MAJOR", 4), ("MINOR", 2), ("PATCH", 0))
    )
    with zipfile.ZipFile(folder / "nvidia_cutlass-4.2.0.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("cutlass_library/source/include/cutlass/version.h", version)
        wheel.writestr("nvidia_cutlass-4.2.0.0.dist-info/METADATA", "Name: nvidia-cutlass\nVersion: 4.2.0.0\n")
        wheel.writestr("nvidia_cutlass-4.2.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("nvidia_cutlass-4.2.0.0.dist-info/RECORD", "")
    image = build(
        docker_engine, "cuda", tag=tag, wheels=folder, folder=tmp_path, BASE=debian_image, TORCH="", PACKAGES=""
    )
    made = docker_engine._call("create", lambda api: api.create_container(image, ["true"]))
    try:
        headers = "/opt/cutlass/include/cutlass/version.h"
        _, found = docker_engine._call("get", lambda api: api.get_archive(made["Id"], headers))
        assert found["size"] == len(version)
    finally:
        docker_engine._call("remove", lambda api: api.remove_container(made["Id"], force=True))
