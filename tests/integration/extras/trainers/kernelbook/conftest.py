"""Fixtures of the pipeline's tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.extras.trainers.kernelbook.service import ROOT, Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """An endpoint."""
    log = tmp_path / "endpoint.log"
    log.touch()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.extras.trainers.kernelbook.endpoint", str(log)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield Service(url=f"http://127.0.0.1:{process.stdout.readline().strip()}/v1", log=log)
        process.kill()
