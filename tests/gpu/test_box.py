"""Judge and worker as in a container, as far as that needs none (see `box`): the device works for both of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tasks.harness import local
from tasks.harness.emulate import asked
from tasks.harness.shared.profilers import NCU_FILES, Capture
from tests.gpu import box
from tests.gpu.bench import Machine, request_for, task_of, verdict_of

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine"),
    pytest.mark.skipif(box.lacking() is not None, reason=str(box.lacking())),
]


@pytest.mark.parametrize("name", ["vectoradd", "amd_fp8_mm", "nvfp4_gemm"])
def test_a_right_solution_is_accepted_in_it(name: str, machine: Machine, audited: list[str]) -> None:
    """By the device's calls: whether they can be marked is on record."""
    task = task_of(name)
    modes = {"test": task.small_tests, "benchmark": task.small_benchmarks}
    request = request_for(task, task.right[0].read_text(encoding="utf-8"), modes, machine, limit_s=60.0)
    steps = local.evaluate(request, start=box.start).steps
    assert verdict_of(steps).verdict == "accepted", verdict_of(steps).message
    judged = steps[0].judged
    assert judged is not None
    audited.append(f"as two users behind the filter, {name}: gate {judged.details.get('gate')}")
    if torch.version.cuda is not None:
        assert judged.details["gate"] == "open", judged.details


@pytest.mark.skipif(asked() or shutil.which("ncu") is None, reason="needs a device of NVIDIA's and ncu on PATH")
@pytest.mark.parametrize(("kernel", "verdict"), [(None, "accepted"), ("regex:no_such_kernel", "runtime_error")])
def test_nsight_compute_captures_a_call_in_it(kernel: str | None, verdict: str, machine: Machine) -> None:
    """The driver must give counters to this user. A capture without a kernel is a failure."""
    task = task_of("vectoradd")
    modes = {"profile.0": task.small_benchmarks[:1]}
    code = task.right[0].read_text(encoding="utf-8")
    request = request_for(task, code, modes, machine, limit_s=240.0, capture=Capture(kernel=kernel))
    report = local.evaluate(request, start=box.start)
    found = verdict_of(report.steps)
    assert found.verdict == verdict, found.message
    files = {name: data for name, _, data in report.artifacts if ".ncu-" in name}
    if kernel is not None:
        assert "captured no kernel whose function name matches" in str(found.message)
        assert files == {}
        return
    assert set(files) == {f"profile.0.{suffix}" for suffix in NCU_FILES}
    assert b'"Kernel Name"' in files["profile.0.ncu-details.csv"]
    assert b"GPU Speed Of Light" in files["profile.0.ncu-details.txt"]


def test_its_processes_have_no_rights(tmp_path: Path) -> None:
    """Another user, no capability, no new ones, and a system call that the policy does not allow fails."""
    program = (
        "import ctypes, os; status = open('/proc/self/status').read(); "
        "fields = dict(line.split(':\\t') for line in status.splitlines() if ':\\t' in line); "
        "libc = ctypes.CDLL(None, use_errno=True); libc.unshare(0x10000000); "
        "print(os.getuid(), fields['CapEff'], fields['NoNewPrivs'], fields['Seccomp'], ctypes.get_errno())"
    )
    done = subprocess.run(
        [sys.executable, str(Path(box.__file__)), str(box.UIDS["worker"]), "--", sys.executable, "-c", program],
        cwd=tmp_path.anchor,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["10002", "0000000000000000", "1", "2", "1"], done.stdout + done.stderr
