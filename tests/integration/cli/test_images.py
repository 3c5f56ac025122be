"""`image`: a recipe is really built from a base made here, without a network; a real submission runs in the result."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import threading
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from runner.daemon.serve import only_daemon
from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from runner.gpu_types import Registry
from runner.model import Mode, Verdict
from runner.task_format import extra_to_stored, load_folder, to_stored
from sandbox.errors import EngineRefused
from sandbox.host.engine import Container, DockerEngine
from sandbox.host.images import Images
from sandbox.spec import Bind, SandboxSpec
from tests.integration.cli.conftest import Call
from tests.plugins.images import PYTHON, download
from tests.plugins.live import ROOT
from tests.unit import samples

VECTORADD = ROOT / "tasks" / "problems" / "vectoradd"
#: The whole recipe, which takes minutes; else everything but torch is installed, and torch is bound.
WHOLE = os.environ.get("KERNEL_RUNNER_TEST_IMAGES") == "all"
SITE_PACKAGES = f"lib/python{PYTHON}/site-packages"


@pytest.fixture
def images(docker_engine: DockerEngine) -> Iterator[Images]:
    """The engine's images of ours."""
    with Images(docker_engine.base_url, owner=docker_engine.owner) as engine:
        yield engine


@pytest.fixture
def tag(images: Images) -> Iterator[str]:
    """A name that no other image has; it is gone afterwards."""
    name = f"kernel-runner-test/{uuid.uuid4().hex[:12]}:latest"
    yield name
    with suppress(EngineRefused):
        images._call("untag", lambda api: api.remove_image(name))


class BoundEngine(DockerEngine):
    """Lays the packages of the evaluation environment over those of the image."""

    def start(self, spec: SandboxSpec) -> Container:
        """See DockerEngine."""
        packages = Bind(source=str(ROOT / ".venv-eval" / SITE_PACKAGES), target=f"/opt/environment/{SITE_PACKAGES}")
        return super().start(replace(spec, binds=(*spec.binds, packages)))


@pytest.mark.timeout(1800)
def test_an_image_is_built_used_listed_and_pruned(  # noqa: PLR0917 fixtures
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    docker_engine: DockerEngine,
    images: Images,
    debian_image: str,
    wheels: Path,
    state_dir: Path,
    eval_python: Path,
    tag: str,
) -> None:
    """A submission's result names its id; an image derived from it is not ours; it goes when nothing uses it."""
    gpus = state_dir / "gpus.d"
    gpus.mkdir()
    for name, value in (("DOCKER_HOST", docker_engine.base_url), ("KERNEL_RUNNER_STATE_DIR", str(state_dir))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KERNEL_RUNNER_GPUS_DIR", str(gpus))
    monkeypatch.setenv("KERNEL_RUNNER_HOST_NAME", "nobody-else")
    torch = ["--wheels", download("torch", "torch==2.13.0", "numpy>=2", "ninja", "setuptools")] if WHOLE else []
    build = ["image", "build", "cpu", "--base", debian_image, "--tag", tag, "--network", "none", "--json"]
    said = call(*build, *(torch or ["--wheels", wheels, "--torch", ""]))
    assert said.code == 0, said.err
    image_id = said.document["id"]
    assert said.document == {"id": image_id, "tag": tag, "kind": "cpu"}
    assert images.image_id(tag) == image_id

    (gpus / "CPU.toml").write_text(f'extends = "CPU"\nname = "CPU"\nimage = "{image_id}"\n', encoding="utf-8")
    verdict, recorded = _evaluate(docker_engine, state_dir, eval_python)
    assert (verdict, recorded) == (Verdict.ACCEPTED, image_id)

    listed = {one["id"]: one for one in call("image", "list", "--json").document}
    assert tag in listed[image_id]["tags"]
    assert listed[image_id]["gpu_types"] == ["CPU"]
    assert debian_image not in {name for one in listed.values() for name in one["tags"]}

    derived = _derive(images, tag)
    assert derived not in {one["id"] for one in call("image", "list", "--json").document}
    images._call("remove", lambda api: api.remove_image(derived))

    # The name goes to another image, as it does when a build replaces it.
    images._call("tag", lambda api: api.tag(debian_image, tag.removesuffix(":latest"), "latest"))
    kept = call("image", "prune", "--dry-run", "--json").document["found"]
    assert image_id not in kept, "a GPU type names it"
    (gpus / "CPU.toml").unlink()
    assert image_id in call("image", "prune", "--dry-run", "--json").document["found"]
    assert image_id in {one.id for one in images.ours()}, "a dry run removes nothing"
    assert image_id in call("image", "prune", "--json").document["removed"]
    assert image_id not in {one.id for one in images.ours()}
    assert images.image_id(debian_image), "an image that is not ours stays"


def _evaluate(engine: DockerEngine, state_dir: Path, eval_python: Path) -> tuple[Verdict, str]:
    """The verdict of an honest submission in the image that GPU type CPU names, and the image its result names."""
    kind = DockerEngine if WHOLE else BoundEngine
    if not WHOLE and not (ROOT / ".venv-eval" / SITE_PACKAGES / "torch").is_dir():
        pytest.skip(f"torch cannot be bound: .venv-eval is not of Python {PYTHON}, as the base image is")
    task = load_folder(VECTORADD).task
    code = (VECTORADD / "solutions" / "correct" / "torch_add.py").read_bytes()
    job = replace(samples.job(mode=Mode.TEST, code=code), task=to_stored(task), extra=extra_to_stored(task.extra))
    settings = EvaluationSettings(
        eval_python=eval_python, state_dir=state_dir, host_name="nobody-else", build_timeout_s=120, max_run_s=300
    )
    with kind(engine.base_url, owner=engine.owner) as own:
        evaluator = Evaluator(own, Registry.load(state_dir / "gpus.d"), settings)
        try:
            result = evaluator.run(job, samples.SLOT, cancel=threading.Event())
        finally:
            evaluator.close()
    runner = result.runs[0].system_info["runner"]
    assert isinstance(runner, dict)
    return result.verdict, str(runner["image"])


def _derive(images: Images, tag: str) -> str:
    """Build an image on top of it; the id of that image, which inherits every label."""
    context = tempfile.TemporaryFile()  # noqa: SIM115 closed below
    text = f"FROM {tag}\nLABEL theirs=1\n".encode()
    with tarfile.open(fileobj=context, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    context.seek(0)
    with context:
        steps = images._call(
            "build", lambda api: list(api.build(fileobj=context, custom_context=True, rm=True, decode=True))
        )
    return next(str(step["aux"]["ID"]) for step in steps if "aux" in step)


@pytest.mark.timeout(1800)
def test_the_recipe_for_cuda_has_the_headers_and_says_what_it_lacks(  # noqa: PLR0917 fixtures
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    docker_engine: DockerEngine,
    images: Images,
    debian_image: str,
    wheels: Path,
    state_dir: Path,
    tag: str,
    tmp_path: Path,
) -> None:
    """Built on a Debian, without torch and the vendor's toolkit: `image check` finds the headers and no torch."""
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
    arguments = {"BASE": debian_image, "TORCH": "", "PACKAGES": "", "PIP_NO_INDEX": "1"}
    said: list[str] = []
    images.build("cuda", tag=tag, arguments=arguments, wheels=folder, network="none", say=said.append)
    for name, value in (("DOCKER_HOST", docker_engine.base_url), ("KERNEL_RUNNER_STATE_DIR", str(state_dir))):
        monkeypatch.setenv(name, value)
    checked = call("image", "check", tag, "--gpu", "H200", "--json")
    assert checked.code == 1, checked.err
    found = {check["name"]: (check["mark"], check["found"]) for check in checked.document["checked"][0]["checks"]}
    assert found["container"][0] == "ok", found
    assert found["python"][1].startswith(f"{PYTHON}.")
    assert found["torch"] == ("failed", "ModuleNotFoundError: No module named 'torch'")
    assert found["CUTLASS headers"] == ("note", "4.2.0 in /opt/cutlass/include, but CUTLASS_PATH is not set")
    assert found["nvcc"][0] == "warning"
    assert found["extensions"][0] == "ok"
    elsewhere = call("image", "check", tag, "--python", "/nowhere/python")
    assert elsewhere.code == 1
    assert "no Python at /nowhere/python" in elsewhere.out


def test_prune_leaves_a_serving_daemons_images_alone(
    call: Call, monkeypatch: pytest.MonkeyPatch, docker_engine: DockerEngine, tmp_path: Path
) -> None:
    """It may hold one that no container shows; looking is allowed."""
    monkeypatch.setenv("DOCKER_HOST", docker_engine.base_url)
    monkeypatch.setenv("KERNEL_RUNNER_STATE_DIR", str(tmp_path))
    with only_daemon(tmp_path):
        said = call("image", "prune")
        assert (said.code, "stop the daemon first" in said.err) == (2, True)
        assert call("image", "prune", "--dry-run").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["metal"], "'metal', expected cpu, cuda, rocm"),
        (["cpu", "--wheels", "{empty}"], "found no wheel in it, expected torch and what it needs"),
    ],
)
def test_a_wrong_order_is_refused_before_anything_is_built(
    call: Call, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """With what was found and what is expected."""
    said = call("image", "build", *(argument.format(empty=tmp_path) for argument in arguments))
    assert said.code == 2
    assert message in said.err


def test_a_build_that_fails_says_at_which_step(
    call: Call, monkeypatch: pytest.MonkeyPatch, docker_engine: DockerEngine
) -> None:
    """The engine's words, and the last lines of the output."""
    monkeypatch.setenv("DOCKER_HOST", docker_engine.base_url)
    said = call("image", "build", "cpu", "--base", "scratch", "--tag", "kernel-runner-test/never")
    assert said.code == 3
    assert "image 'kernel-runner-test/never' from Dockerfile.cpu: " in said.err
