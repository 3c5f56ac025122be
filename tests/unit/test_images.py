"""OCI images: the interpreter that a GPU type names is the one its containers run."""

from __future__ import annotations

import errno
import importlib.util
import io
import re
import sys
import tomllib
import types
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from runner.base.config import Config
from runner.base.errors import EvaluationError
from runner.base.gpu_types import Registry
from runner.base.model import Device
from runner.evaluation.context import Place
from runner.evaluation.evaluate import Evaluator
from sandbox.errors import EngineRefused
from sandbox.host.engine import DockerEngine, EngineFacts
from sandbox.spec import DeviceDriver
from tests.unit import samples

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted((ROOT / "sandbox" / "image").glob("Dockerfile.*"))


class ImageEngine:
    """An engine that has every image, and one device until it has another."""

    device = "0"

    def check(self) -> EngineFacts:
        """A plain engine."""
        names = ("version", "api_version", "cgroup_version", "cgroup_driver", "storage_driver")
        cdi = {f"nvidia.com/gpu={self.device}": (f"/dev/nvidia{self.device}",)}
        texts: Any = dict.fromkeys(names, "")
        return EngineFacts(**texts, runtimes=("runc",), rootless=False, cdi=cdi)

    def reap_lost(self) -> int:
        """Nothing is lost."""
        return 0

    def image_id(self, reference: str) -> str:
        """The id of an image."""
        return f"sha256:{reference}"


def evaluator_in(directory: Path) -> Evaluator:
    """An evaluator of that engine."""
    limits = {"build_timeout_s": 1, "max_run_s": 1, "warm_containers": 0, "build_workers": 0}
    settings = Config.model_validate(
        {"eval_python": Path(sys.executable), "state_dir": directory, "host_name": "h", **limits}
    )
    return Evaluator(cast("DockerEngine", ImageEngine()), Registry.load(), settings)


def test_one_device_that_does_not_work_keeps_no_other_from_working(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe of a GPU type goes on to its next device. A type of the CPU has one environment, and one probe."""
    evaluator = evaluator_in(tmp_path)
    probed: list[str] = []

    def probe(place: Place) -> Mapping[str, str]:
        probed.append(place.slot.name)
        if place.slot.name != "good":
            raise EvaluationError(f"the judge cannot use the device of {place.gpu.name}")
        return {"gpu": place.gpu.name}

    monkeypatch.setattr(evaluator, "_system", probe)
    h100, cpu = (replace(gpu, image="image", image_python="/python") for gpu in (samples.H100, samples.CPU))
    device = Device(uuid="u", name="n", vendor="nvidia", index=0)
    slots = [replace(samples.SLOT, name=name, devices=(device,)) for name in ("bad", "good", "later")]
    assert evaluator._prove(h100, slots) == {"gpu": "H100"}
    with pytest.raises(EvaluationError):
        evaluator._prove(h100, [slots[0], replace(slots[0], name="worse")])
    with pytest.raises(EvaluationError):
        evaluator._prove(cpu, [replace(samples.SLOT, name="bad"), replace(samples.SLOT, name="good")])
    assert probed == ["bad", "good", "bad", "worse", "bad"]


def test_an_image_runs_the_interpreter_its_type_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`image` and `image_python` reach the container's spec; the host's own environment does not.

    Devices that a toolkit names only after the daemon's start are known at its next look.
    """
    evaluator = evaluator_in(tmp_path)
    gpu = replace(samples.H100, image="cuda", image_python="/own/bin/python")
    monkeypatch.setattr(evaluator._registry, "get", lambda _: gpu)
    environment = evaluator._environment(gpu)
    assert (environment.image, environment.python) == ("sha256:cuda", "/own/bin/python")
    assert [bind.target for bind in environment.binds] == ["/kernel-runner", "/etc/passwd", "/etc/group"]
    assert environment.cdi == {"nvidia.com/gpu=0": ("/dev/nvidia0",)}
    monkeypatch.setattr(ImageEngine, "device", "1")
    evaluator.check()
    assert evaluator._environment(gpu) == replace(environment, cdi={"nvidia.com/gpu=1": ("/dev/nvidia1",)})
    # What it answers wrongly is no bug of the daemon's, and what was known of it stays.
    facts = evaluator._facts
    monkeypatch.setattr(ImageEngine, "check", Mock(side_effect=EngineRefused("info: the engine refused: 500")))
    with pytest.raises(EvaluationError, match="500"):
        evaluator.check()
    assert evaluator._facts is facts is not None
    assert environment.device_driver is DeviceDriver.NVIDIA
    amd = evaluator._environment(replace(samples.MI300, image="rocm"))
    assert amd.device_driver is DeviceDriver.NODES
    # A disk that fails is no bug either.
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("runner.evaluation.evaluate.stage", Mock(side_effect=full))
    with pytest.raises(EvaluationError, match="No space left"):
        evaluator_in(tmp_path)._environment(gpu)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_the_shipped_dockerfiles_put_torch_where_types_look_for_it(dockerfile: Path) -> None:
    """The default of `image_python` is the environment that each of them makes."""
    environment = Path(samples.H100.image_python).parents[1]
    text = dockerfile.read_text(encoding="utf-8")
    assert f"python3 -m venv {environment}" in text
    assert f'{environment}/bin/pip install --no-cache-dir ${{TORCH:+torch==${{TORCH}}}} "numpy>=2"' in text


def test_the_rocm_image_knows_the_architectures_of_the_shipped_types() -> None:
    """gfx950 came with ROCm 7.0, and torch must be built for the base's release."""
    text = (ROOT / "sandbox" / "image" / "Dockerfile.rocm").read_text(encoding="utf-8")
    (release,) = re.findall(r"(?m)^ARG BASE=rocm/dev-ubuntu-[\d.]+:(\d+)\.\d+[\d.]*-complete$", text)
    assert Registry.load().get("MI355X").environment["PYTORCH_ROCM_ARCH"] == "gfx950"
    assert int(release) >= 7
    (check,) = re.findall(r'python -c "(import sys, torch; .*?)"; }', text, re.DOTALL)
    for base, built, refused in (("7.2.4-90", "7.2.53211", False), ("6.4.1", "7.2.53211", True), ("7.2.4", None, True)):
        code = check.replace("\\\n", "").replace("import sys, torch; ", "")
        torch = types.SimpleNamespace(version=types.SimpleNamespace(hip=built))
        with pytest.raises(SystemExit) as ended:
            exec(code, {"sys": sys, "torch": torch, "open": lambda _, base=base: io.StringIO(base)})  # noqa: S102 the recipe's
        assert bool(ended.value.code) == refused


def test_a_recipe_has_the_torch_that_is_tested_and_copies_what_lies_beside_it() -> None:
    """That of the extra `dev`. `docker build` has the folder as its context."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (torch,) = [name for name in extras["dev"] if name.startswith("torch==")]
    assert {path.suffix for path in DOCKERFILES} >= {".cpu", ".cuda", ".rocm"}
    for dockerfile in DOCKERFILES:
        text = dockerfile.read_text(encoding="utf-8")
        (version,) = re.findall(r'^ARG TORCH="?([^+"\n]+)', text, re.MULTILINE)
        assert f"torch=={version}" == torch
        copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
        names = {name for line in copied for name in line.split()} - {"wheel[s]"}
        assert all((dockerfile.parent / name).is_file() for name in names)


def test_the_headers_are_taken_out_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the library and of its tools side by side, and nothing else; a wheel without them is an error."""
    where = ROOT / "sandbox" / "image" / "cutlass_headers.py"
    spec = importlib.util.spec_from_file_location("cutlass_headers", where)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    source = "cutlass_library/source/"
    files = {
        f"{source}include/cutlass/version.h": "version",
        f"{source}include/cute/tensor.hpp": "cute",
        f"{source}tools/util/include/cutlass/util/host_tensor.h": "util",
        f"{source}examples/a.cu": "example",
        "cutlass_cppgen/__init__.py": "python",
    }
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path), str(tmp_path / "include")])
    with pytest.raises(SystemExit, match="found 0 wheels"):
        program.main()
    with zipfile.ZipFile(tmp_path / "nvidia_cutlass-4.2.0.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    program.main()
    found = {path.relative_to(tmp_path / "include").as_posix() for path in (tmp_path / "include").rglob("*.*")}
    assert found == {"cutlass/version.h", "cute/tensor.hpp", "cutlass/util/host_tensor.h"}
    monkeypatch.setattr(program, "SOURCES", ("elsewhere/",))
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path), str(tmp_path / "empty")])
    with pytest.raises(SystemExit, match=r"no cutlass/version\.h"):
        program.main()
