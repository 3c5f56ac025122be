"""HIP templates compile with clang for the devices that they are offered on, as far as clang knows these.

Needs clang 19 or newer, for gfx950 20 or newer, and the headers of HIP, not ROCm. Debian 12 has them as clang-22,
libclang-common-22-dev and libamdhip64-dev.
KERNEL_RUNNER_TEST_CLANG and KERNEL_RUNNER_TEST_HIP name them where they are not in the usual places.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from torch.utils import cpp_extension

from runner.task_format.model import TaskFolder
from tests.integration.templates.offered import architectures, with_template
from tests.integration.templates.test_cuda import inline

CLANG: Final = os.environ.get("KERNEL_RUNNER_TEST_CLANG") or next(
    filter(None, map(shutil.which, ("clang-22", "clang-21", "clang-20", "clang-19"))), None
)
#: The folder that has hip/hip_runtime.h.
HEADERS: Final = next(
    (
        path
        for path in (os.environ.get("KERNEL_RUNNER_TEST_HIP", ""), "/opt/rocm/include", "/usr/include")
        if Path(path, "hip", "hip_runtime.h").is_file()
    ),
    None,
)
#: Torch's headers are for the host. Where they see a compiler for devices they want parts of ROCm that are not here.
_HIDDEN: Final = ("__HIPCC__", "__HIP__", "__CUDACC__", "__HIP_DEVICE_COMPILE__")
FOLDERS: Final = with_template("HIP")
CASES: Final = [(folder, name) for folder in FOLDERS for name in architectures(folder) if name.startswith("gfx")]

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(CLANG is None or HEADERS is None, reason="clang 19 or HIP's headers are missing; see the file"),
]


@dataclass(frozen=True, kw_only=True)
class Clang:
    """The compiler, and what it takes for an installation of ROCm: HIP's headers and their version."""

    rocm: Path

    def knows(self, architecture: str) -> bool:
        """Whether it compiles for an architecture at all."""
        command = [str(CLANG), "--target=amdgcn-amd-amdhsa", "-nogpulib", f"-mcpu={architecture}", "-c", "-x", "c"]
        return (
            subprocess.run([*command, os.devnull, "-o", os.devnull], capture_output=True, check=False).returncode == 0
        )

    def compile(self, text: str, architecture: str, directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        """Compile a source; device libraries are not linked."""
        path = directory / "source.hip"
        path.write_text(text, encoding="utf-8")
        command = [
            *(str(CLANG), "-x", "hip", f"--offload-arch={architecture}", "-nogpulib", f"--rocm-path={self.rocm}"),
            *("-std=c++20", "-D__HIP_PLATFORM_AMD__=1", *flags),
            *(f"-I{folder}" for folder in cpp_extension.include_paths()),
            str(path),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def clang(tmp_path_factory: pytest.TempPathFactory) -> Clang:
    """The compiler."""
    root = tmp_path_factory.mktemp("rocm")
    text = Path(str(HEADERS), "hip", "hip_version.h").read_text(encoding="utf-8")
    version = re.findall(r"#define (HIP_VERSION_M\w+|HIP_VERSION_PATCH) +(\d+)", text)
    (root / "bin").mkdir()
    (root / "bin" / ".hipVersion").write_text("".join(f"{part}={number}\n" for part, number in version))
    (root / "include").mkdir()
    (root / "include" / "hip").symlink_to(Path(str(HEADERS), "hip"))
    return Clang(rocm=root)


def source(call: Mapping[str, Any]) -> str:
    """As `test_cuda.source`, with HIP's header in the place of CUDA's."""
    checks = [f"[[maybe_unused]] static auto* const check_{name} = &{name};" for name in call["functions"]]
    hide = [line for name in _HIDDEN for line in (f'#pragma push_macro("{name}")', f"#undef {name}")]
    show = [f'#pragma pop_macro("{name}")' for name in _HIDDEN]
    # The headers of HIP before 7 take the size of a wavefront from clang, which no longer tells it from version 21 on.
    wave = ["#ifndef __AMDGCN_WAVEFRONT_SIZE", "#define __AMDGCN_WAVEFRONT_SIZE 64", "#endif"]
    headers = [*hide, "#include <torch/types.h>", *show, *wave, "#include <hip/hip_runtime.h>"]
    return "\n".join([*headers, call["cuda_sources"], call["cpp_sources"], *checks, ""])


@pytest.mark.parametrize(("folder", "architecture"), CASES, ids=[f"{folder.name}-{name}" for folder, name in CASES])
def test_a_template_compiles(
    folder: TaskFolder, architecture: str, clang: Clang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the device's instructions, and once for the host with torch's headers."""
    if not clang.knows(architecture):
        pytest.skip(f"this clang does not know {architecture}")
    call = inline(folder.templates["HIP"], monkeypatch)
    device = ("--cuda-device-only", "-S", "-o", str(tmp_path / "device.s"))
    host = ("--cuda-host-only", "-fsyntax-only")
    for flags in (device, host) if architecture == architectures(folder)[0] else (device,):
        done = clang.compile(source(call), architecture, tmp_path, *flags)
        assert done.returncode == 0, done.stderr[-4000:]
    assert "s_endpgm" in (tmp_path / "device.s").read_text(encoding="utf-8")


def test_an_unknown_name_in_a_kernel_does_not_compile(
    clang: Clang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's part is really compiled."""
    assert clang.knows("gfx942")
    assert not clang.knows("gfx1")
    call = dict(inline(FOLDERS[0].templates["HIP"], monkeypatch))
    call["cuda_sources"] += "\n__global__ void broken() { __no_such_intrinsic(); }\n"
    flags = ("--cuda-device-only", "-S", "-o", str(tmp_path / "device.s"))
    done = clang.compile(source(call), "gfx942", tmp_path, *flags)
    assert done.returncode != 0
    assert "__no_such_intrinsic" in done.stderr
