"""What is said about an engine that cannot be used."""

from __future__ import annotations

from typing import NoReturn

import pytest

from sandbox.errors import EngineUnavailable
from sandbox.host.engine import DockerEngine


def test_an_engine_that_this_user_may_not_open_needs_a_group_and_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs; telling the user to start it would mislead."""

    def refuse(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    engine = DockerEngine("unix:///run/docker.sock", owner="nobody")
    monkeypatch.setattr(engine, "_client", refuse)
    with pytest.raises(EngineUnavailable, match=r"PermissionError.*groups docker") as caught:
        engine.check()
    assert "start it" not in str(caught.value)
