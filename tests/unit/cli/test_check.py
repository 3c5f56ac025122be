"""What `check` says of our own files in a container, of memory, and of what it cannot write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NoReturn, cast

import pytest

from runner.base.config import Config
from runner.base.gpu_types import Registry
from runner.base.model import Slot
from runner.cli import check, programs
from runner.cli.finding import Mark
from sandbox.host.engine import DockerEngine
from sandbox.protocol import StepResult
from tests.support.waiting import PATIENCE_S

_NAMED = ("lib/kernel_runner-0.2.0-py3-none-any.whl", "site-packages/kernel_runner-0.2.0.dist-info/METADATA")


@pytest.mark.parametrize(
    ("files", "own", "mark", "found"),
    [
        (("lib/other.whl",), (), Mark.OK, "none"),
        (_NAMED[:1], (), Mark.WARNING, _NAMED[0]),
        (_NAMED[1:], (), Mark.WARNING, "site-packages/kernel_runner-0.2.0.dist-info:"),
        (("src/kernel-runner/runner/__init__.py",), ("src/kernel-runner/runner", "absent"), Mark.WARNING, "runner:"),
        ((*_NAMED, "a/kernel_runner-1", "b/kernel_runner-1"), (), Mark.WARNING, "and 1 more"),
    ],
)
def test_what_of_ours_a_submission_can_read_is_named(
    tmp_path: Path, files: tuple[str, ...], own: tuple[str, ...], mark: Mark, found: str
) -> None:
    """Wheels, installed packages, source trees by name, and what the daemon runs from."""
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    command = [sys.executable, "-c", programs._OURS_PROBE, str(tmp_path), *(str(tmp_path / name) for name in own)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    step = StepResult(name="ours", command="", start_ns=0, duration_ns=0, exit_code=0, stdout=done.stdout)
    finding = check._ours(step)
    assert (finding.mark, found in finding.fact) == (mark, True), finding


def test_a_state_directory_that_this_user_may_not_write_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state directory may be the service's, while another user of the engine checks; or its disk may be full."""

    def prove(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", "/var/lib/kernel-runner/stage")

    monkeypatch.setattr(check, "prove", prove)
    slot = Slot(name="cpu0", gpu_type="CPU", cpus=(0,), devices=())
    config = Config(host_name="h", state_dir=tmp_path)
    (finding,) = check._sandbox(cast("DockerEngine", None), config, Registry.load(), [slot])
    assert finding.mark is Mark.FAILED
    assert finding.fact.startswith("/var/lib/kernel-runner/stage: Permission denied")


@pytest.mark.parametrize(("total_gib", "mark"), [(32, Mark.OK), (31.9, Mark.WARNING)])
def test_slots_that_may_fill_more_memory_than_the_host_has_are_a_warning(total_gib: float, mark: Mark) -> None:
    """Two slots of 16 GiB: what one submission may use, another would lack."""
    slots = [Slot(name=f"t4-{number}", gpu_type="T4", cpus=(number,), devices=()) for number in range(2)]
    finding = check._memory(Registry.load(), slots, total_bytes=int(total_gib * (1 << 30)))
    assert finding.mark is mark
    assert finding.fact.startswith(f"32.0 GiB for containers of all slots, of {total_gib:.1f} GiB")
