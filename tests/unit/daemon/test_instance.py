"""The identity of a state directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.base.errors import ConfigError
from runner.daemon import instance
from runner.daemon.instance import instance_id


def test_a_directory_keeps_its_id_and_no_other_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made once, read ever after; the error of one that cannot be written names the file.

    A copy is another on another machine: else daemons of cloned machines with one name would take each other's jobs.
    """
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = instance_id(tmp_path / "a")
    assert instance_id(tmp_path / "a") == first
    assert instance_id(tmp_path / "b") != first
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["instance"]
    with pytest.raises(ConfigError, match="nowhere/instance: No such file"):
        instance_id(tmp_path / "nowhere")
    monkeypatch.setattr(instance, "boot_id", lambda: "another machine's")
    assert instance_id(tmp_path / "a") != first


@pytest.mark.parametrize("text", ["", "half an i"])
def test_a_broken_file_is_replaced(tmp_path: Path, text: str) -> None:
    """After a power cut on a file system that keeps no promises, the daemon starts under a new id and says so."""
    (tmp_path / "instance").write_text(text, encoding="ascii")
    with capture_logs() as logs:
        made = instance_id(tmp_path)
    assert instance_id(tmp_path) == made
    assert [line["event"] for line in logs] == ["instance_id_replaced"]
