"""What is said about an engine that cannot be used, and where one keeps its data."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from sandbox.errors import EngineUnavailable
from sandbox.host.engine import CONTAINERD_ROOT, DockerEngine, _data_roots


def test_an_engine_that_this_user_may_not_open_needs_a_group_and_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs; telling the user to start it would mislead."""

    def refuse(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    engine = DockerEngine("unix:///run/docker.sock", owner="nobody")
    monkeypatch.setattr(engine, "_client", refuse)
    with pytest.raises(EngineUnavailable, match=r"PermissionError.*groups docker") as caught:
        engine.check()
    assert "start it" not in str(caught.value)


def test_images_are_where_containerd_keeps_them() -> None:
    """From Docker 29 on by default, whatever `data-root` says."""
    info = {"DockerRootDir": "/mnt/docker", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    assert _data_roots(info) == (Path("/mnt/docker"), Path(CONTAINERD_ROOT))
    assert _data_roots({**info, "DriverStatus": [["Backing Filesystem", "extfs"]]}) == (Path("/mnt/docker"),)
