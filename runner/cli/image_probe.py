"""What a submission finds in a container: Python, torch, compilers, libraries, profilers. Standard library only.

A program that runs inside the container, as the worker's user; `runner.cli.image_check` sends its text there. Its
argument names the architectures to compile for, nvcc's and hipcc's, as JSON. Writes one JSON object. A question that
fails is answered with its error, and never stops the others.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

#: Name in the answer -> the module that submissions import, and the distributions that may hold it.
MODULES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "numpy": ("numpy", ("numpy",)),
    "setuptools": ("setuptools", ("setuptools",)),
    "triton": ("triton", ("triton", "triton-rocm", "pytorch-triton-rocm")),
    "cutlass_dsl": ("cutlass.cute", ("nvidia-cutlass-dsl",)),
    "cuda_python": ("cuda.bindings.driver", ("cuda-python", "cuda-bindings")),
    "cuda_core": ("cuda.core", ("cuda-core",)),
    "cuda_tile": ("cuda.tile", ("cuda-tile",)),
    "nvmath": ("nvmath", ("nvmath-python",)),
    "helion": ("helion", ("helion",)),
    "tinygrad": ("tinygrad", ("tinygrad",)),
}
#: Program -> arguments that make it tell its version.
TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "c++": ("--version",),
    "ninja": ("--version",),
    "nvcc": ("--version",),
    "hipcc": ("--version",),
    "ncu": ("--version",),
    "nsys": ("--version",),
    "compute-sanitizer": ("--version",),
    "rocprofv3": ("--version",),
}
#: Where headers may lie besides the variables' folders.
_INCLUDES: Final = ("/usr/local/include", "/usr/include", "/usr/local/cuda/include", "/opt/cutlass/include")
_VARIABLES: Final = ("CUTLASS_PATH", "CPLUS_INCLUDE_PATH")
#: Seconds that an import or a compiler may take; the first import of torch reads gigabytes.
_PATIENCE_S: Final = 180.0
#: torch's own list of architectures; `torch.cuda.get_arch_list` answers only where a device is.
_TORCH: Final = """
import json, torch
flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
found = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
print(json.dumps({**found, "architectures": (flags or "").split()}))
"""
_CUDA_SOURCE: Final = "__global__ void nothing() {}\n"
_HIP_SOURCE: Final = "#include <hip/hip_runtime.h>\n__global__ void nothing() {}\n"


def main() -> None:
    """Answer everything."""
    nvcc_architecture, hip_architecture = json.loads(sys.argv[1])
    answer = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": _torch(),
        "modules": {name: _module(*where) for name, where in MODULES.items()},
        "tools": {name: _tool(name, arguments) for name, arguments in TOOLS.items()},
        "compiles": {
            **({nvcc_architecture: _compiles_cuda(nvcc_architecture)} if nvcc_architecture else {}),
            **({hip_architecture: _compiles_hip(hip_architecture)} if hip_architecture else {}),
        },
        "cutlass": cutlass(os.environ, _INCLUDES),
        "variables": {name: os.environ.get(name) for name in _VARIABLES},
    }
    sys.stdout.write(json.dumps(answer) + "\n")


def _ran(*command: str, directory: str | None = None) -> tuple[bool, str]:
    """Whether a program ended well, and its output; or the last line of its error."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
            cwd=directory,
        )
    except OSError as error:
        return False, f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return False, f"{command[0]}: no end after {_PATIENCE_S:.0f} s"
    if done.returncode == 0:
        return True, done.stdout
    return False, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _torch() -> dict[str, Any]:
    """Its version, what it was built for, and the architectures; or an error."""
    well, answer = _ran(sys.executable, "-c", _TORCH)
    return dict(json.loads(answer)) if well else {"error": answer}


def _module(module: str, distributions: Sequence[str]) -> dict[str, str] | None:
    """The version of a module that can be imported, an error of one that cannot; None: not installed."""
    versions = [found for found in map(_version, distributions) if found is not None]
    if not versions and not _is_there(module):
        return None
    well, answer = _ran(sys.executable, "-c", f"import {module}")
    return {"version": versions[0] if versions else "of unknown version"} if well else {"error": answer}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _tool(name: str, arguments: Sequence[str]) -> dict[str, str] | None:
    """The version of a program, or an error; None: not on PATH."""
    path = shutil.which(name)
    if path is None:
        return None
    well, answer = _ran(path, *arguments)
    return {"path": path, "version": version_in(answer)} if well else {"path": path, "error": answer}


def version_in(text: str) -> str:
    """The version that a program tells: behind `release` or `version`, else the first number with a point."""
    for pattern in (r"(?:release|[Vv]ersion:?)\s+v?(\d+(?:\.\d+)+)", r"\b(\d+(?:\.\d+)+)"):
        match = re.search(pattern, text)
        if match is not None:
            return match[1]
    return "of unknown version"


def _compiles_cuda(architecture: str) -> str | None:
    """Why nvcc compiles nothing for an architecture (90a); None: it does."""
    target = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
    return _compiles("probe.cu", _CUDA_SOURCE, "nvcc", target, "-cubin", "-o", "probe.out")


def _compiles_hip(architecture: str) -> str | None:
    """Why hipcc compiles nothing for an architecture (gfx950); None: it does."""
    return _compiles("probe.hip", _HIP_SOURCE, "hipcc", f"--offload-arch={architecture}", "--genco", "-o", "probe.out")


def _compiles(name: str, source: str, *command: str) -> str | None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / name).write_text(source, encoding="utf-8")
        well, answer = _ran(*command, name, directory=directory)
    return None if well else answer


def cutlass(environment: Mapping[str, str], includes: Sequence[str]) -> dict[str, Any] | None:
    """The CUTLASS headers: folder, version, and whether a compiler finds them without an option; None: not there.

    Args:
        environment: the variables of a submission's process.
        includes: folders to look into besides those that the variables name. The first two are every compiler's own.
    """
    named = [folder for folder in environment.get("CPLUS_INCLUDE_PATH", "").split(":") if folder]
    root = environment.get("CUTLASS_PATH")
    for folder in (*named, *([f"{root}/include"] if root else []), *includes):
        try:
            text = (Path(folder) / "cutlass" / "version.h").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        numbers = [re.search(rf"define CUTLASS_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
        version = ".".join(found[1] for found in numbers if found is not None)
        # A link in every compiler's folder may lead to where the headers are.
        place = (Path(folder) / "cutlass").resolve().parent
        return {"folder": str(place), "version": version, "found": folder in (*named, *includes[:2])}
    return None


if __name__ == "__main__":
    main()
