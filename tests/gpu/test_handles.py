"""Whose memory of a device can be handed to a process of another user, as judge and worker are in a container."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tests.gpu.bench import ROOT

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.version.cuda is None, reason="no CUDA device on this machine"
)

OTHER_UID = 10002


@pytest.mark.parametrize("uid", [None, OTHER_UID], ids=["the same uid", "another uid"])
def test_interprocess_handles_cross_users(uid: int | None, audited: list[str]) -> None:
    """Of both kinds. Calls on a device rest on the older one, which the driver calls interprocess handles."""
    if uid is not None and os.geteuid() != 0:
        pytest.skip("only root may become somebody else")
    found = {}
    for kind in ("exported", "legacy"):
        arguments = [kind] if uid is None else [kind, str(uid)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.gpu.handles", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        found[kind] = done.stdout.strip() or done.stderr.strip()
        audited.append(f"{kind:8} uid {os.geteuid()} to {os.geteuid() if uid is None else uid}: {found[kind]}")
    assert found["exported"].startswith("read ("), found
    assert found["legacy"].startswith("read ("), found


def test_streams_wait_for_a_number_in_the_hosts_memory(audited: list[str]) -> None:
    """In a process without a context, as a worker that has just started tries it."""
    program = "from tasks.harness.shared.cuda_driver import try_out; print(try_out())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    audited.append(f"streams that wait: {done.stdout.strip()}")
    assert done.stdout.strip() == "None", done.stdout + done.stderr
