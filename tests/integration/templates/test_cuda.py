"""CUDA templates compile with nvcc for the devices that they are offered on."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from torch.utils import cpp_extension

from runner.task_format.model import TaskFolder
from tests.integration.templates.offered import architectures, with_template

#: Where the wheels nvidia-cuda-nvcc and its fellows lie.
_WHEELS: Final = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "nvcc"
NVCC: Final = shutil.which("nvcc") or (str(_WHEELS) if _WHEELS.is_file() else None)
FOLDERS: Final = with_template("CUDA")
CASES: Final = [(folder, name) for folder in FOLDERS for name in architectures(folder) if not name.startswith("gfx")]

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(NVCC is None, reason="nvcc is neither on PATH nor among the wheels; see `make test-nightly`"),
]


def inline(code: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """The arguments of the one `load_inline` of a template, which is not compiled."""
    calls: list[Mapping[str, Any]] = []

    def load_inline(**arguments: Any) -> types.SimpleNamespace:  # noqa: ANN401 torch's own arguments
        calls.append(arguments)
        return types.SimpleNamespace()

    monkeypatch.setattr(cpp_extension, "load_inline", load_inline)
    names: dict[str, Any] = {"__name__": "submission"}
    task = types.ModuleType("task")
    task.__dict__.update(input_t=object, output_t=object)
    monkeypatch.setitem(sys.modules, "task", task)
    exec(compile(code, "template", "exec"), names)  # noqa: S102 a template of ours
    (call,) = calls
    return call


def source(call: Mapping[str, Any]) -> str:
    """What torch gives to nvcc, and then the declarations, which must be those of the functions that are defined."""
    checks = [f"[[maybe_unused]] static auto* const check_{name} = &{name};" for name in call["functions"]]
    headers = [f"#include <{name}>" for name in ("torch/types.h", "cuda.h", "cuda_runtime.h")]
    return "\n".join([*headers, call["cuda_sources"], call["cpp_sources"], *checks, ""])


def nvcc(
    text: str, architecture: str, directory: Path, *flags: str, device_only: bool = False
) -> subprocess.CompletedProcess[str]:
    """Compile a source for the device, and unless told otherwise for the host; link nothing."""
    path = directory / "cuda.cu"
    path.write_text(text, encoding="utf-8")
    command = [
        *(str(NVCC), "-cubin" if device_only else "-c", str(path), "-o", str(directory / "cuda.o"), "-std=c++20"),
        f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
        *cpp_extension.COMMON_NVCC_FLAGS,
        *(f"-I{folder}" for folder in cpp_extension.include_paths()),
        *flags,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("folder", "architecture"), CASES, ids=[f"{folder.name}-{name}" for folder, name in CASES])
def test_a_template_compiles(
    folder: TaskFolder, architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch's `load_inline` compiles it, with torch's headers; the host's part once, since it is always the same."""
    call = inline(folder.templates["CUDA"], monkeypatch)
    again = architecture != architectures(folder)[0]
    done = nvcc(source(call), architecture, tmp_path, *(call.get("extra_cuda_cflags") or ()), device_only=again)
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_declaration_that_differs_from_the_definition_does_not_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would be found only where torch links the extension."""
    call = dict(inline(next(folder for folder in FOLDERS if folder.name == "vectoradd").templates["CUDA"], monkeypatch))
    call["cpp_sources"] = "torch::Tensor add(torch::Tensor a, double b);"
    done = nvcc(source(call), "90a", tmp_path)
    assert done.returncode != 0
    assert "add" in done.stderr
