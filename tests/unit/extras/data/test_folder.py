"""Folders that change places; lists and keys that are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.base.errors import DataError
from runner.extras.data import folder
from runner.extras.data.folder import files_of, replace, staging
from runner.extras.data.people import Exclusions, read_exclusions, read_key


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    """Files and folders; an error leaves nothing either, and is a sentence."""
    refused = pytest.raises(DataError, match=r"cannot write beside .*out: Is a directory")
    with refused, staging(tmp_path / "out") as left:
        left.write_bytes(b"")
    assert list(tmp_path.iterdir()) == []
    (left / "code").mkdir(parents=True)
    (left / "code" / "part").write_text("x")
    with staging(tmp_path / "out") as new:
        assert new == left
        assert files_of(new) == []


def test_a_file_system_that_cannot_exchange_folders_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one is untouched."""
    monkeypatch.setattr(folder, "_RENAME_EXCHANGE", 1 << 30)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    with staging(tmp_path / "out") as new, pytest.raises(DataError, match=r"to a new folder.*untouched"):
        replace(tmp_path / "out", new)
    assert files_of(tmp_path / "out") == ["old"]


def test_a_list_of_exclusions(tmp_path: Path) -> None:
    """Ids may have spaces; comments and empty lines say nothing."""
    path = tmp_path / "list"
    path.write_text("\n# all\nuser 123\nuser a b  # why\nsubmission 7\n")
    assert read_exclusions(path) == Exclusions(users=frozenset({"123", "a b"}), submissions=frozenset({7}))
    for line in ("submission x", "submission 99999999999", f"submission {'9' * 5000}", "person 1", "user"):
        path.write_text(f"{line}\n")
        with pytest.raises(DataError, match="line 1"):
            read_exclusions(path)
    with pytest.raises(DataError, match="cannot read"):
        read_exclusions(tmp_path / "none")


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    """And one that is not there."""
    (tmp_path / "key").write_text("short\n")
    for name, says in (("key", "has 5 bytes, and needs 16 or more"), ("none", "cannot read the key .*none: .*")):
        with pytest.raises(DataError, match=rf"{says}; make one with `openssl rand -hex 32 > .*{name}`$"):
            read_key(tmp_path / name)
