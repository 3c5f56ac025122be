"""Torch's headers are compiled once for an evaluation environment, and compilers that submissions call use them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.live import ROOT

#: Builds an extension as a worker's submission would. GCC marks the precompiled header that it uses by `!`.
BUILDS = """
import sys
sys.path.insert(0, {root!r})
from tasks.harness.shared import torch_headers
torch_headers.prepare()
import torch
from torch.utils.cpp_extension import load_inline
source = "torch::Tensor more(torch::Tensor a) {{ return a + 1; }}"
module = load_inline(name="more", cpp_sources=[source], functions=["more"], extra_cflags=["-H"], use_pch=True,
                     build_directory={folder!r}, verbose=True)
print("answer", module.more(torch.zeros(1)).item())
"""
#: Has torch compile a kernel as a worker's submission would.
COMPILES = """
import sys
sys.path.insert(0, {root!r})
from tasks.harness.shared import torch_headers
torch_headers.prepare()
import torch
more = torch.compile(lambda a: a + 1)
print("answer", more(torch.zeros(64)).sum().item())
"""


@pytest.fixture
def environment() -> Iterator[Path]:
    """A place that is not kept: the headers take almost a gigabyte."""
    with tempfile.TemporaryDirectory(prefix="kernel-runner-test-", dir="/var/tmp") as name:
        yield Path(name, "environment")


@pytest.mark.timeout(1800)
def test_compilers_take_the_precompiled_headers_of_their_environment(
    eval_python: Path, environment: Path, tmp_path: Path
) -> None:
    """Also where a submission asks torch to make its own, which would end in an error; and they are made once."""
    folder = tmp_path / "build"
    subprocess.run([eval_python, "-m", "venv", "--without-pip", environment], check=True)
    packages, mine = (
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for python in (eval_python, environment / "bin" / "python")
    )
    Path(mine, "torch.pth").write_text(f"{packages}\n", encoding="utf-8")
    python = environment / "bin" / "python"
    share = environment / "share" / "kernel-runner"
    for name in ("torch-0", "torch-new", "systemd"):
        (share / name).mkdir(parents=True)
    program = ROOT / "sandbox" / "image" / "torch_headers.py"
    subprocess.run([python, program, ""], check=True, umask=0o077)
    # Those of another torch are gone, and what others have there is not.
    other, headers = sorted(path.name for path in share.iterdir())
    assert other == "systemd"
    assert headers not in ("torch-0", "torch-new")
    folder.mkdir()
    text = BUILDS.format(root=str(ROOT), folder=str(folder))
    built = subprocess.run([python, "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert f"! {share}/torch-" in built.stdout + built.stderr
    assert "answer 1.0" in built.stdout
    (files,) = (share / headers / "torch").glob("extension.h.gch")
    made = files.stat()
    # Containers have users of their own, whatever root's umask is.
    assert all(path.stat().st_mode & 0o004 for path in (share / headers).rglob("*"))
    subprocess.run([python, program, "--once"], check=True)
    assert files.stat() == made
    (tmp_path / "bin").mkdir()
    compiler, log = tmp_path / "bin" / "g++", tmp_path / "log"
    text = f'#!/bin/sh\necho "builds $*" >>{log}\nexec {shutil.which("g++")} -H "$@" 2>>{log}\n'
    compiler.write_text(text, encoding="utf-8")
    compiler.chmod(0o755)
    variables = {
        "PATH": f"{compiler.parent}:{os.environ['PATH']}",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }
    compiled = subprocess.run(
        [python, "-c", COMPILES.format(root=str(ROOT))],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
    )
    assert "answer 64.0" in compiled.stdout
    said = log.read_text(encoding="utf-8").splitlines()
    # Not what torch would build to see which vector instructions the compiler knows.
    assert len([line for line in said if line.startswith("builds") and "-shared" in line]) == 1
    assert any(line.startswith(f"! {share}/{headers}/torch/csrc/inductor/cpp_prefix.h.gch") for line in said)
