"""What an operator reads of a process that is left on a device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.devices import processes

ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("groups", "where"),
    [
        ("0::/user.slice/session-3.scope\n", ""),
        (f"0::/system.slice/docker-{ID}.scope\n", ", container 0123456789ab"),
        (f"12:memory:/docker/{ID}\n1:cpu:/\n", ", container 0123456789ab"),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", ", container 0123456789ab"),
    ],
)
def test_a_process_is_told_by_name_user_and_container(
    groups: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /proc has them, whichever engine made the container."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    (tmp_path / "99").mkdir()
    (tmp_path / "99" / "comm").write_text("python3\n")
    (tmp_path / "99" / "cgroup").write_text(groups)
    owner = processes.owner_of(99)
    assert owner == f"python3, uid {os.getuid()}{where}"


def test_nothing_is_said_of_a_process_that_is_gone() -> None:
    """This one is there, the other one never was."""
    assert f"uid {os.getuid()}" in (processes.owner_of(os.getpid()) or "")
    assert processes.owner_of(1 << 30) is None
