"""`image check`: what is said of an image, on an engine that answers by script."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import pytest

from runner.cli import image, image_probe, main
from runner.cli.app import ExitCode
from runner.cli.finding import Finding, Mark
from runner.cli.image_check import findings, supports
from runner.cli.image_probe import cutlass, version_in
from runner.gpu_types import GpuType, Registry
from sandbox.errors import EngineRefused, EngineUnavailable, ProtocolError
from sandbox.host.container import ContainerReport
from sandbox.protocol import StepsRequest
from sandbox.spec import SandboxSpec
from tests.unit import samples

REGISTRY = Registry.load()
PYTHON = "/opt/environment/bin/python"
#: What the probe answers in a complete CUDA image.
CUDA: Mapping[str, Any] = {
    "python": "3.12.3",
    "executable": PYTHON,
    "torch": {
        "version": "2.13.0+cu130",
        "cuda": "13.0",
        "hip": None,
        "architectures": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"],
    },
    "modules": {name: {"version": "1.2.3"} for name in image_probe.MODULES},
    "tools": {
        **{name: {"path": f"/usr/bin/{name}", "version": "13.0"} for name in image_probe.TOOLS},
        "hipcc": None,
        "rocprofv3": None,
    },
    "compiles": {"90a": None},
    "cutlass": {"folder": "/opt/cutlass/include", "version": "4.2.1", "found": True},
    "variables": {"CUTLASS_PATH": "/opt/cutlass", "CPLUS_INCLUDE_PATH": "/opt/cutlass/include"},
}


class Engine:
    """An engine with one image, whose containers print an answer."""

    def __init__(self, answer: Mapping[str, Any] | None = None, error: Exception | None = None) -> None:
        self.answer = answer or CUDA
        self.error = error
        self.specs: list[SandboxSpec] = []
        self.requests: list[StepsRequest] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def image_id(self, reference: str) -> str:
        """The only one."""
        if reference != "ours":
            raise EngineRefused(f"image {reference!r}: the engine at unix:///run/docker.sock does not have it; pull it")
        return "sha256:0123456789abcdef"

    def check(self) -> Any:  # noqa: ANN401 only the slice is looked at
        """Its description."""
        return type("Facts", (), {"slice": None})

    def start(self, spec: SandboxSpec) -> Any:  # noqa: ANN401 a context with the container
        """A container, or the error."""
        if self.error is not None:
            raise self.error
        self.specs.append(spec)
        return nullcontext(self)

    def run(self, request: StepsRequest, **_: object) -> ContainerReport:
        """What the container reports."""
        self.requests.append(request)
        return ContainerReport(
            steps=(samples.step("image", {}, stdout=json.dumps(self.answer)),),
            artifacts=(),
            ok=True,
            message=None,
            outcome=samples.outcome(),
            attested={"comparisons": {"engine": 40, "kernel": 12}},
        )


Checked = Callable[..., tuple[int, str, str]]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Checked:
    """Runs `image check` on an engine: exit code, stdout, stderr."""
    config = tmp_path / "config.toml"
    config.write_text(f'gpus_dir = "{tmp_path / "gpus.d"}"\nstate_dir = "{tmp_path / "state"}"\n', encoding="utf-8")

    def run(engine: Engine, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(image, "DockerEngine", lambda *_, **__: engine)
        code = main(["--config", str(config), "image", "check", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def changed(**parts: Any) -> dict[str, Any]:  # noqa: ANN401 any part of an answer
    """The complete answer with other parts; a mapping changes only the keys that it names."""
    answer = copy.deepcopy(dict(CUDA))
    for name, part in parts.items():
        answer[name] = {**answer[name], **part} if isinstance(part, dict) else part
    return answer


def found_in(answer: Mapping[str, Any], gpu: str | GpuType = "H100") -> dict[str, Finding]:
    """The findings by name."""
    entry = REGISTRY.get(gpu) if isinstance(gpu, str) else gpu
    return {finding.name: finding for finding in findings(answer, entry)}


def test_a_complete_image_is_good(checked: Checked) -> None:
    """The container is a submission's but for the devices, with the variables of the type, and everything is told."""
    engine = Engine()
    code, out, _ = checked(engine, "ours", "--gpu", "H100", "--json")
    said = json.loads(out)
    assert (code, said["ok"], said["image"]) == (ExitCode.OK, True, "ours")
    (checks,) = [one["checks"] for one in said["checked"]]
    assert {check["mark"] for check in checks} == {"ok"}
    told = {check["name"]: check["found"] for check in checks}
    assert told["container"] == "0123456789ab, 52 settings attested"
    assert told["torch"] == "2.13.0+cu130, CUDA 13.0"
    assert told["architecture"].startswith("torch runs on 90a, built for sm_75")
    assert told["nvcc"] == "13.0 at /usr/bin/nvcc, compiles for 90a"
    assert (told["CUTLASS DSL"], told["CUTLASS headers"]) == ("1.2.3", "4.2.1 in /opt/cutlass/include")
    assert said["checked"][0]["found"] == json.loads(json.dumps(CUDA))
    (spec,) = engine.specs
    assert (spec.image, spec.python, spec.devices, len(spec.limits.cpus)) == (
        "sha256:0123456789abcdef",
        PYTHON,
        None,
        1,
    )
    assert spec.environment["TORCH_CUDA_ARCH_LIST"] == "9.0a"
    (step,) = engine.requests[0].steps
    assert (step.argv[0], json.loads(step.argv[2])) == (PYTHON, ["90a", None])


def test_an_amd_type_is_asked_about_hipcc(checked: Checked) -> None:
    """With its gfx target; the interpreter may be named."""
    engine = Engine()
    checked(engine, "ours", "--gpu", "MI355X", "--python", "/usr/bin/python3")
    (step,) = engine.requests[0].steps
    assert (step.argv[0], json.loads(step.argv[2])) == ("/usr/bin/python3", [None, "gfx950"])


@pytest.mark.parametrize(
    ("error", "found", "remedy", "code"),
    [
        (
            EngineRefused(f'start: the engine refused: exec: "{PYTHON}": stat {PYTHON}: no such file or directory'),
            f"no Python at {PYTHON}",
            "--python",
            ExitCode.NOT_ACCEPTED,
        ),
        (
            ProtocolError("container 01: ended before 'ready'; its stderr: found Python 3.9, expected 3.11 or newer"),
            "found Python 3.9, expected 3.11 or newer",
            "a newer Python",
            ExitCode.NOT_ACCEPTED,
        ),
        (
            EngineUnavailable("no container engine answers"),
            "no container engine",
            "start Docker",
            ExitCode.INFRASTRUCTURE,
        ),
    ],
    ids=["no-python", "old-python", "no-engine"],
)
def test_an_image_whose_container_does_not_start_says_why(
    checked: Checked, error: Exception, found: str, remedy: str, code: int
) -> None:
    """With what to do about it."""
    got, out, _ = checked(Engine(error=error), "ours", "--gpu", "H100")
    assert got == code
    assert found in out
    assert remedy in out


def test_without_a_type_it_is_judged_for_those_that_name_it(checked: Checked, tmp_path: Path) -> None:
    """And else as for CPUs, where another vendor's code does not matter."""
    _, out, _ = checked(Engine(), "ours")
    assert out.startswith("ours for CPU\n")
    (tmp_path / "gpus.d").mkdir()
    for name in ("H100", "MI300"):
        (tmp_path / "gpus.d" / f"{name}.toml").write_text(f'extends = "{name}"\nname = "{name}"\nimage = "ours"\n')
    code, out, _ = checked(Engine(), "ours", "--json")
    assert [one["gpu_type"] for one in json.loads(out)["checked"]] == ["H100", "MI300"]
    assert code == ExitCode.NOT_ACCEPTED


@pytest.mark.parametrize(
    ("answer", "gpu", "name", "mark", "text"),
    [
        (changed(torch={"error": "No module named 'torch'"}), "CPU", "torch", Mark.FAILED, "No module named 'torch'"),
        (changed(torch={"cuda": None}), "CPU", "torch", Mark.OK, "for CPUs alone"),
        (changed(), "MI300", "torch", Mark.FAILED, "CUDA 13.0: it has no device code for MI300"),
        (
            changed(torch={"architectures": ["sm_80"]}),
            "H100",
            "architecture",
            Mark.FAILED,
            "expected 90a of GPU type H100",
        ),
        (
            changed(torch={"hip": "7.2", "architectures": ["gfx942"]}),
            "MI300",
            "architecture",
            Mark.OK,
            "runs on gfx942",
        ),
        (changed(modules={"numpy": None}), "CPU", "numpy", Mark.FAILED, "not installed"),
        (changed(tools={"ninja": None}), "CPU", "extensions", Mark.WARNING, "no ninja"),
        (changed(torch={"cuda": "12.9"}), "H100", "nvcc", Mark.WARNING, "torch is built with 12.9"),
        (changed(compiles={"90a": "unsupported"}), "H100", "nvcc", Mark.FAILED, "not for 90a: unsupported"),
        (changed(modules={"cutlass_dsl": {"error": "no libcuda"}}), "H100", "CUTLASS DSL", Mark.WARNING, "no libcuda"),
        (changed(cutlass=None), "H100", "CUTLASS headers", Mark.NOTE, "not there"),
        (changed(variables={"CUTLASS_PATH": None}), "H100", "CUTLASS headers", Mark.NOTE, "CUTLASS_PATH is not set"),
    ],
)
def test_what_an_image_lacks_is_told(answer: dict[str, Any], gpu: str, name: str, mark: Mark, text: str) -> None:
    """A failure where no submission can run, a warning or a note where some cannot."""
    finding = found_in(answer, gpu)[name]
    assert (finding.mark, text in finding.found) == (mark, True), finding
    assert mark is not Mark.FAILED or finding.remedy


def test_the_variables_to_set_are_the_remedy() -> None:
    """Headers that are there but that no variable names."""
    answer = changed(cutlass={"found": False}, variables={"CUTLASS_PATH": None})
    finding = found_in(answer)["CUTLASS headers"]
    assert "a compiler does not look there" in finding.found
    assert 'CUTLASS_PATH = "/opt/cutlass", CPLUS_INCLUDE_PATH = "/opt/cutlass/include"' in (finding.remedy or "")


@pytest.mark.parametrize(
    ("built", "architecture", "runs"),
    [
        (["sm_90"], "90a", True),
        (["sm_90a"], "90a", True),
        (["sm_86"], "89", True),
        (["sm_90"], "89", False),
        (["sm_80", "compute_80"], "100a", True),
        (["sm_90", "sm_120"], "100a", False),
        (["sm_100a"], "120a", False),
        (["gfx942", "gfx950"], "gfx950", True),
        (["gfx94"], "gfx942", False),
        ([], "75", False),
    ],
)
def test_which_builds_run_on_a_device(built: list[str], architecture: str, runs: bool) -> None:
    """By the rules of binary and PTX compatibility."""
    assert supports(built, architecture) is runs


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88", "13.0"),
        ("c++ (Debian 12.2.0-14) 12.2.0", "12.2.0"),
        ("NVIDIA (R) Nsight Compute\nVersion 2025.3.1.0 (build 1)", "2025.3.1.0"),
        ("hello", "of unknown version"),
    ],
)
def test_programs_tell_their_version(text: str, version: str) -> None:
    """Each in its own words."""
    assert version_in(text) == version


def test_the_headers_are_found_where_variables_or_compilers_look(tmp_path: Path) -> None:
    """CUTLASS_PATH alone helps no compiler."""
    tmp_path = tmp_path.resolve()
    folder = tmp_path / "cutlass" / "include"
    (folder / "cutlass").mkdir(parents=True)
    lines = [f"#define CUTLASS_{name} {number}" for name, number in (("MAJOR", 4), ("MINOR", 2), ("PATCH", 1))]
    (folder / "cutlass" / "version.h").write_text("\n".join(lines), encoding="utf-8")
    found = {"folder": str(folder), "version": "4.2.1"}
    assert cutlass({}, []) is None
    assert cutlass({"CUTLASS_PATH": str(tmp_path / "cutlass")}, []) == {**found, "found": False}
    assert cutlass({"CPLUS_INCLUDE_PATH": f"/nowhere:{folder}"}, []) == {**found, "found": True}
    assert cutlass({}, [str(folder)]) == {**found, "found": True}
    assert cutlass({}, ["/a", "/b", str(folder)]) == {**found, "found": False}
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "cutlass").symlink_to(folder / "cutlass")
    assert cutlass({}, [str(tmp_path / "local")]) == {**found, "found": True}
