"""Leaderboards made over HTTP: from folders below one, from archives; no path leads out, and no other login may."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import tasks
from tests.integration.extras.gateway.conftest import ADMIN, Answer, Gate, multipart

TASKS = Path(tasks.__file__).parent / "problems"
#: What tasks of this repository take from beside their folders.
SHARED = ("eval.py", "utils.py")
SET = "name: a set\ndescription: two problems\ndeadline: ''\nproblems:\n"


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """A folder with one task and a competition file, and a secret beside it."""
    root = tmp_path / "problems"
    shutil.copytree(TASKS / "identity", root / "pmpp" / "identity")
    for name in SHARED:
        shutil.copy(TASKS / name, root / "pmpp" / name)
    (root / "set.yaml").write_text(
        f"{SET}  - directory: pmpp/identity\n    name: identity\n    deadline: '2099-01-01'\n    gpus: [CPU]\n",
        encoding="utf-8",
    )
    shutil.copytree(TASKS / "vectoradd", tmp_path / "outside")
    (root / "link").symlink_to(tmp_path / "outside")
    return root


@pytest.fixture
def site(open_gate: Callable[..., Gate], problems: Path, tmp_path: Path, database_url: str) -> Gate:
    """A gateway with a login that may write leaderboards."""
    secret = tmp_path / "publish"
    secret.write_text(f"{database_url}\n", encoding="utf-8")
    return open_gate(
        gateway_requests_per_minute=100_000, gateway_problems_dir=problems, gateway_publish_url_file=secret
    )


def archive(**files: str) -> bytes:
    """A task as a .zip, with some files changed."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as made:
        for name in SHARED:
            made.write(TASKS / name, name)
        for path in sorted((TASKS / "identity").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(TASKS / "identity").as_posix()
                made.writestr(f"identity/{name}", files.get(name, path.read_text(encoding="utf-8")))
    return target.getvalue()


def send(site: Gate, data: bytes, file: str = "mine.zip", **fields: str) -> Answer:
    """Upload an archive."""
    body, headers = multipart(data, file, fields=fields)
    return site.ask("POST", "/admin/leaderboards", body, admin=ADMIN, headers=headers)


def boards(site: Gate) -> list[tuple[object, ...]]:
    """Name and visibility of each board."""
    return site.sql("SELECT name, visibility FROM leaderboard.leaderboard ORDER BY name")


DIRECTORIES = ["", ".", "..", "../outside", "link", "/etc", "pmpp/../..", "nothing", "a\x00b", "x" * 5000, None, 1]


def test_a_folder_becomes_a_board_and_no_path_leads_out(site: Gate, tmp_path: Path) -> None:
    """Neither by dots nor by links; no answer shows a path of the host; a second time the folder replaces the first."""
    for directory in DIRECTORIES:
        answer = site.send_json("POST", "/admin/leaderboards", {"directory": directory}, admin=ADMIN)
        assert answer.status in {400, 422}
        assert str(tmp_path) not in answer.text
        assert boards(site) == []
    # As `popcorn admin create-leaderboard` has it; a second time it replaces the first, submissions and all.
    answer = site.send_json("POST", "/admin/leaderboards", {"directory": "pmpp/identity"}, admin=ADMIN)
    assert (answer.status, answer.json) == (200, {"status": "ok", "leaderboard": "identity-dev"})
    site.user("ada")
    assert site.submit("/submission/identity-dev/CPU/test").status == 202
    closed = {"directory": "pmpp/identity", "visibility": "closed"}
    assert site.send_json("POST", "/admin/leaderboards", closed, admin=ADMIN).status == 200
    assert boards(site) == [("identity-dev", "closed")]
    assert site.sql("SELECT count(*) FROM leaderboard.submission") == [(0,)]


def test_a_closed_board_is_never_open(site: Gate) -> None:
    """Not for a moment: webhooks would tell it, and the gateway may end then."""
    site.sql("ALTER TABLE leaderboard.leaderboard ADD CHECK (visibility = 'closed')")
    closed = {"visibility": "closed"}
    for path, body in (
        ("/admin/leaderboards", {"directory": "pmpp/identity", **closed}),
        ("/admin/update-problems", closed),
    ):
        assert site.send_json("POST", path, body, admin=ADMIN).status == 200
    assert send(site, archive(), **closed).status == 200
    assert len(boards(site)) > 2


ARCHIVES = [
    (b"no archive", "mine.zip"),
    (archive(**{"task.yml": "lang: nothing"}), "mine.zip"),
    (archive(**{"task.yml": "["}), "mine.zip"),
    (archive(), "a b.zip"),
    (archive(), ".zip"),
    (b"", "mine.zip"),
]


def test_an_archive_becomes_a_board(site: Gate) -> None:
    """For trying by default; under a name of its own it is made once. A wrong one makes nothing and shows no path."""
    for data, name in ARCHIVES:
        answer = send(site, data, name)
        assert answer.status == 400, answer.text
        assert not any(place in answer.text for place in ("/tmp/", "kernel-runner-"))
        assert boards(site) == []
    assert send(site, archive()).json == {"status": "ok", "leaderboard": "mine-dev"}
    assert send(site, archive(), visibility="closed").status == 200
    assert boards(site) == [("mine-dev", "closed")]
    assert send(site, archive(), name="final").status == 200
    refused = send(site, archive(), name="final")
    assert (refused.status, "exists already" in refused.detail) == (400, True)


def test_problems_are_updated(site: Gate, problems: Path) -> None:
    """Created, left alone, changed; one that is wrong stops no other."""
    request = {"repository": "gpu-mode/reference-kernels", "problem_set": "set"}
    first = site.send_json("POST", "/admin/update-problems", request, admin=ADMIN)
    told = {"status": "ok", "created": ["identity"]}
    assert first.json == {**told, **{key: [] for key in ("updated", "skipped", "errors")}}
    # As a newer KernelBot stores it.
    site.sql("UPDATE leaderboard.leaderboard SET task = task || '{\"validation\": null}'")
    again = site.send_json("POST", "/admin/update-problems", {}, admin=ADMIN).json
    assert again["skipped"] == [{"name": "identity", "reason": "no changes"}]
    site.user("ada")
    site.submit("/submission/identity/CPU/test")
    reference = problems / "pmpp" / "identity" / "reference.py"
    reference.write_text(reference.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    (problems / "bad.yaml").write_text(f"{SET}  - directory: ../outside\n    name: x\n", encoding="utf-8")
    refused = site.send_json("POST", "/admin/update-problems", {}, admin=ADMIN).json
    assert [error["name"] for error in refused["errors"]] == ["bad", "identity"]
    assert str(problems) not in str(refused)
    forced = site.send_json("POST", "/admin/update-problems", {"force": True}, admin=ADMIN).json
    assert forced["updated"] == ["identity"]
    for bad in ({"problem_set": "../x"}, {"problem_set": 1}, {"force": 1}, {"visibility": "x"}):
        assert site.send_json("POST", "/admin/update-problems", bad, admin=ADMIN).status in {400, 422}


def test_a_site_without_such_a_login(gate: Gate) -> None:
    """Says what to use instead."""
    commands = {"leaderboards": "leaderboard", "update-problems": "leaderboard", "export-hf": "data export"}
    for route, command in commands.items():
        answer = gate.send_json("POST", f"/admin/{route}", {}, admin=ADMIN)
        assert (answer.status, f"kernel-runner {command}" in answer.detail) == (501, True)
