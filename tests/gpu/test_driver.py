"""What calls on a device need of its driver; test_box shows that judge and worker share memory as two users."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tests.gpu.bench import ROOT

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
