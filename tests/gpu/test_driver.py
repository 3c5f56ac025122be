"""What calls on a device need of its driver; test_box shows that judge and worker share memory as two users."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tests.gpu.bench import ROOT
from tests.gpu.box import UIDS

#: As a worker that was started ahead gets its account (`sandbox.inside.template`).
_CHANGES_ITS_USER = f"""
import os
from runner.evaluation.container_spec import _AHEAD
from sandbox.inside.process import Account, switch_to
from sandbox.inside.template import _require_no_capability
from tasks.harness.judge.accelerator import require_device
from tasks.harness.shared.cuda_driver import Driver
os.setresuid(10000, 0, 10000)
exec(_AHEAD)
switch_to(Account(uid={UIDS["worker"]}, groups=(), directory="/", umask=0o022, oom_score_adj=None))
_require_no_capability()
require_device("cuda")
driver = Driver.open()
print(len(driver.export(driver.allocate(1 << 20).start)[0]))
"""

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.version.cuda is None, reason="no CUDA device on this machine"
)


def test_streams_wait_for_a_number_in_the_hosts_memory(audited: list[str]) -> None:
    """In a process without a context, as a worker that has just started tries it."""
    program = "from tasks.harness.shared.cuda_driver import try_out; print(try_out())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    audited.append(f"streams that wait: {done.stdout.strip()}")
    assert done.stdout.strip() == "None", done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_context_works_on_when_its_process_becomes_another_user(audited: list[str]) -> None:
    """It computes, and shares its memory; no thread of the driver's keeps a right."""
    done = subprocess.run(
        [sys.executable, "-c", _CHANGES_ITS_USER], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    audited.append(f"a context of another user: {done.stdout.strip() or done.stderr[-300:]}")
    assert done.stdout.strip() == "64", done.stdout + done.stderr
