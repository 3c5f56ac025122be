"""`image check`: what a submission will find in an image, asked in a container that is hardened like a submission's.

Owns what makes an image unusable, and what an image may lack. The questions are in `runner.cli.image_probe`, which runs
inside; the container gets no devices. The command is in `runner.cli.image`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from runner.base.config import Config
from runner.base.errors import EvaluationError, KernelRunnerError
from runner.base.model import Slot
from runner.cli import image_probe
from runner.cli.finding import Finding, Mark
from runner.cli.programs import host_environment, image_environment, run_programs
from runner.devices.vendors import SUPPORTED
from runner.gpu_types import GpuType, Vendor
from sandbox.errors import EngineUnavailable, SandboxError
from sandbox.host.engine import DockerEngine
from sandbox.protocol import Step

_HOST: Final = "host"
_WALL_S: Final = 900.0
_STEP: Final = "image"
#: Module of the probe -> what people call it, and the vendor whose submissions use it; None: any with devices.
_PACKAGES: Final[Mapping[str, tuple[str, Vendor | None]]] = {
    "triton": ("Triton", None),
    "cutlass_dsl": ("CUTLASS DSL", Vendor.NVIDIA),
    "cuda_python": ("cuda-python", Vendor.NVIDIA),
    "cuda_core": ("cuda-core", Vendor.NVIDIA),
    "cuda_tile": ("cuda-tile", Vendor.NVIDIA),
    "nvmath": ("nvmath", Vendor.NVIDIA),
    "helion": ("Helion", None),
    "tinygrad": ("tinygrad", None),
}


def examine(
    engine: DockerEngine, config: Config, reference: str, python: str, gpu: GpuType
) -> tuple[Sequence[Finding], Mapping[str, Any] | None]:
    """Look into an image: findings, and what the probe answered; None if no container ran.

    Args:
        engine: where the image is.
        config: of this host.
        reference: an OCI image, or `host` for the root file system made of this host's files.
        python: the image's interpreter; unused with `host`.
        gpu: whose limits and variables the container gets, and whose devices the image is for.
    """
    try:
        if reference == _HOST:
            environment = host_environment(engine, eval_python=config.require_eval_python(), state_dir=config.state_dir)
        else:
            environment = image_environment(engine, reference, python, state_dir=config.state_dir)
        slot = Slot(name="image-check", gpu_type=gpu.name, devices=(), cpus=(max(os.sched_getaffinity(0)),))
        program = Path(image_probe.__file__).read_text(encoding="utf-8")
        asked = json.dumps([gpu.nvcc_arch if gpu.vendor is Vendor.NVIDIA else None, hip_architecture(gpu)])
        step = Step(name=_STEP, argv=(environment.python, "probe.py", asked), timeout_s=_WALL_S, result_pipe=False)
        files = {"probe.py": program.encode()}
        report = run_programs(engine, environment, gpu, slot, steps=[step], files=files, wall_s=_WALL_S)
        (result,) = report.steps
        if result.exit_code != 0:
            last = (result.stderr.strip().splitlines() or ["no message"])[-1]
            raise EvaluationError(f"the questions ended with exit code {result.exit_code}: {last}")
    except (SandboxError, KernelRunnerError) as error:
        return [_unusable(error, environment_python(reference, python))], None
    answer: Mapping[str, Any] = json.loads(result.stdout)
    settings = sum(report.attested["comparisons"].values())
    found = f"{environment.image.removeprefix('sha256:')[:12]}, {settings} settings attested"
    return [Finding(name="container", mark=Mark.OK, found=found), *findings(answer, gpu)], answer


def environment_python(reference: str, python: str) -> str:
    """What the interpreter of an image is called in messages."""
    return "python3" if reference == _HOST else python


def hip_architecture(gpu: GpuType) -> str | None:
    """The gfx target of an AMD type; None: the type names none, or is another vendor's."""
    if gpu.vendor is not Vendor.AMD:
        return None
    return gpu.environment.get("PYTORCH_ROCM_ARCH")


def _unusable(error: Exception, python: str) -> Finding:
    """Why no container of the image answered, and what to do."""
    text = str(error)
    infrastructure = isinstance(error, EngineUnavailable)
    remedy = "see the message; docs/adding-a-gpu-type.md#images says what a sandbox needs of its image"
    if infrastructure:
        remedy = "start Docker, let this user reach its socket, or set `docker_host` (DOCKER_HOST)"
    elif "3.11 or newer" in text:
        remedy = (
            "take a base with a newer Python, or name another interpreter: --python, `image_python` of the GPU type"
        )
    elif python in text and ("no such file" in text.lower() or "not found" in text.lower()):
        text = f"no Python at {python}: {text}"
        remedy = "name the image's interpreter: --python, `image_python` of the GPU type"
    elif "does not have it" in text:
        remedy = "`docker build`, `docker pull`, or `docker load`"
    return Finding(name="container", mark=Mark.FAILED, found=text, remedy=remedy, infrastructure=infrastructure)


def findings(answer: Mapping[str, Any], gpu: GpuType) -> Iterator[Finding]:
    """What the probe's answer means for submissions on a GPU type; a type without devices asks for torch alone."""
    yield Finding(name="python", mark=Mark.OK, found=f"{answer['python']} at {answer['executable']}")
    yield from _torch(answer["torch"], gpu)
    yield from _needed(answer)
    if gpu.vendor is not Vendor.NONE:
        yield from _compiler(answer, gpu)
    for name, (title, vendor) in _PACKAGES.items():
        if answer["modules"][name] is not None or vendor in (None, gpu.vendor):
            yield _package(title, answer["modules"][name])
    if answer["cutlass"] is not None or gpu.vendor is Vendor.NVIDIA:
        yield _headers(answer["cutlass"], answer["variables"])
    for name in SUPPORTED[gpu.vendor].profilers if gpu.vendor in SUPPORTED else ():
        yield _profiler(name, answer["tools"][name])


def _torch(torch: Mapping[str, Any], gpu: GpuType) -> Iterator[Finding]:
    if "error" in torch:
        remedy = "install torch into the environment of this interpreter, or name another one by --python"
        yield Finding(name="torch", mark=Mark.FAILED, found=torch["error"], remedy=remedy)
        return
    built = ", ".join(f"{name} {torch[key]}" for name, key in (("CUDA", "cuda"), ("ROCm", "hip")) if torch[key])
    found = f"{torch['version']}, {built or 'for CPUs alone'}"
    needed = SUPPORTED[gpu.vendor].torch_build if gpu.vendor in SUPPORTED else None
    if needed is not None and not torch[needed]:
        remedy = f"install a build of torch for {'CUDA' if needed == 'cuda' else 'ROCm'} (PIP_INDEX_URL)"
        yield Finding(
            name="torch", mark=Mark.FAILED, found=f"{found}: it has no device code for {gpu.name}", remedy=remedy
        )
        return
    yield Finding(name="torch", mark=Mark.OK, found=found)
    architecture = gpu.nvcc_arch if gpu.vendor is Vendor.NVIDIA else hip_architecture(gpu)
    listed = " ".join(torch["architectures"]) or "none"
    if needed is None:
        return
    if architecture is None:
        found = f"GPU type {gpu.name} names none; torch is built for {listed}"
        yield Finding(name="architecture", mark=Mark.NOTE, found=found)
    elif supports(torch["architectures"], architecture):
        yield Finding(name="architecture", mark=Mark.OK, found=f"torch runs on {architecture}, built for {listed}")
    else:
        found = (
            f"torch is built for {listed}, expected {architecture} of GPU type {gpu.name}: its kernels do not run there"
        )
        remedy = "install a build of torch for it; older ones know no newer device"
        yield Finding(name="architecture", mark=Mark.FAILED, found=found, remedy=remedy)


def supports(built: Sequence[str], architecture: str) -> bool:
    """Whether code for the architectures of a build runs on a device.

    Code for sm_80 runs on every 8.x from 8.0 on, PTX (compute_80) on everything newer; architecture-specific code
    (sm_90a) and AMD's (gfx942) on that one alone.

    Args:
        built: as torch lists them: sm_80, sm_90a, compute_90, gfx942.
        architecture: of the device, as in `nvcc_arch` (90a) or a gfx target.
    """
    if architecture.startswith("gfx"):
        return architecture in built
    device = int(architecture.rstrip("af"))
    for name in built:
        kind, _, number = name.partition("_")
        if not number.isdigit():
            if kind == "sm" and number.rstrip("af") == str(device):
                return True
            continue
        target = int(number)
        if target <= device and (kind == "compute" or (kind == "sm" and target // 10 == device // 10)):
            return True
    return False


def _needed(answer: Mapping[str, Any]) -> Iterator[Finding]:
    """What the harness and torch's extension loader cannot do without."""
    numpy = answer["modules"]["numpy"]
    if numpy is None or "error" in numpy:
        found = "not installed" if numpy is None else numpy["error"]
        yield Finding(name="numpy", mark=Mark.FAILED, found=found, remedy="install numpy beside torch")
    missing = [name for name in ("c++", "ninja") if answer["tools"][name] is None]
    setuptools = answer["modules"]["setuptools"]
    missing += ["setuptools"] if setuptools is None or "error" in setuptools else []
    if missing:
        found = f"no {', '.join(missing)}: submissions that compile (load_inline, torch.compile, Triton) fail"
        yield Finding(name="extensions", mark=Mark.WARNING, found=found, remedy="install them; Triton needs c++ alone")
    else:
        tools = answer["tools"]
        found = f"c++ {_version(tools['c++'])}, ninja {_version(tools['ninja'])}"
        yield Finding(name="extensions", mark=Mark.OK, found=found)


def _version(found: Mapping[str, str]) -> str:
    return found.get("version") or found["error"]


def _compiler(answer: Mapping[str, Any], gpu: GpuType) -> Iterator[Finding]:
    name = SUPPORTED[gpu.vendor].compiler
    tool = answer["tools"][name]
    if tool is None:
        yield Finding(
            name=name,
            mark=Mark.WARNING,
            found="not on PATH: submissions with device code in C++ fail",
            remedy="take a base with the vendor's toolkit",
        )
        return
    found = f"{_version(tool)} at {tool['path']}"
    torch = answer["torch"]
    built = torch.get({"nvcc": "cuda", "hipcc": "hip"}[name])
    for architecture, failure in answer["compiles"].items():
        if failure is not None:
            remedy = "take a base with a newer toolkit"
            yield Finding(
                name=name, mark=Mark.FAILED, found=f"{found}, not for {architecture}: {failure}", remedy=remedy
            )
            return
    targets = "".join(f", compiles for {architecture}" for architecture in answer["compiles"])
    if built is not None and _version(tool).split(".")[0] != str(built).split(".")[0]:
        yield Finding(
            name=name,
            mark=Mark.WARNING,
            found=f"{found}{targets}, but torch is built with {built}: torch refuses to build extensions",
            remedy="take base and torch of the same major version",
        )
        return
    yield Finding(name=name, mark=Mark.OK, found=f"{found}{targets}")


def _package(title: str, found: Mapping[str, str] | None) -> Finding:
    if found is None:
        return Finding(name=title, mark=Mark.NOTE, found="not installed: submissions that import it fail")
    if "error" in found:
        return Finding(name=title, mark=Mark.WARNING, found=f"cannot be imported: {found['error']}")
    return Finding(name=title, mark=Mark.OK, found=found["version"])


def _headers(found: Mapping[str, Any] | None, variables: Mapping[str, str | None]) -> Finding:
    name = "CUTLASS headers"
    if found is None:
        return Finding(name=name, mark=Mark.NOTE, found="not there: submissions that include them fail")
    text = f"{found['version']} in {found['folder']}"
    lacks = [] if found["found"] else ["a compiler does not look there"]
    lacks += [] if variables["CUTLASS_PATH"] else ["CUTLASS_PATH is not set"]
    if lacks:
        root = str(found["folder"]).removesuffix("/include")
        names = f'CUTLASS_PATH = "{root}", CPLUS_INCLUDE_PATH = "{root}/include"'
        remedy = f"set `environment` in the file of the GPU type: {{ {names} }}"
        return Finding(name=name, mark=Mark.NOTE, found=f"{text}, but {' and '.join(lacks)}", remedy=remedy)
    return Finding(name=name, mark=Mark.OK, found=text)


def _profiler(name: str, found: Mapping[str, str] | None) -> Finding:
    if found is None:
        return Finding(name=name, mark=Mark.NOTE, found="not on PATH")
    if "error" in found:
        return Finding(name=name, mark=Mark.WARNING, found=f"{found['path']}: {found['error']}")
    return Finding(name=name, mark=Mark.OK, found=f"{found['version']} at {found['path']}")
