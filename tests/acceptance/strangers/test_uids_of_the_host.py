"""Users of the host with uids that our containers have."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from runner.cli import check
from runner.cli.finding import Mark
from sandbox.spec import ACCOUNTS

_FIRST, _LAST = ACCOUNTS[0].judge - 1, ACCOUNTS[-1].worker


def _user(name: str, uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", "/", "/bin/sh"))


@pytest.mark.parametrize(
    ("uids", "subordinate", "warned"),
    [
        ((0, 1000, _FIRST - 1, _LAST + 1, 65534), "ada:100000:65536\n", False),
        ((_FIRST,), "", True),
        ((_LAST,), "", True),
        (range(_FIRST, _FIRST + 5), "", True),
        ((), f"ada:{_FIRST - 5}:5\nbob:{_LAST + 1}:9\n\n# x\nodd:line\nada:x:y\n", False),
        ((), f"ada:{_FIRST - 5}:6\n", True),
        ((), f"ada:{_LAST}:1\n", True),
        ((), "ada:1:65536\n", True),
    ],
)
def test_users_with_uids_of_containers_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uids: tuple[int, ...], subordinate: str, *, warned: bool
) -> None:
    """By passwd and by ranges of subordinate uids, at both ends."""
    file = tmp_path / "subuid"
    file.write_text(subordinate, encoding="utf-8")
    monkeypatch.setattr(check, "_SUBORDINATE", (file, tmp_path / "absent"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [_user(f"u{uid}", uid) for uid in uids])
    finding = check._uids()
    assert (finding.mark is Mark.WARNING) == warned, finding
    assert ("u" in finding.fact or "ada" in finding.fact) or not warned
