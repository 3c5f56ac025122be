"""After the end of a leaderboard: whose code is public, and that pages, HTTP API and data export say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from runner.base.errors import DataError
from runner.extras.data.choice import Options
from runner.extras.data.export import export
from tests.integration.extras.gateway.conftest import ADMIN, Gate
from tests.integration.extras.gateway.test_pages import Browser, checked
from tests.integration.store.conftest import ranked

#: A leaderboard by its name: what makes it so, and whether its code is public.
BOARDS = {
    "ended": ("UPDATE leaderboard.leaderboard SET deadline = now()", True),
    "open": ("SELECT", False),
    "closed": ("UPDATE leaderboard.leaderboard SET deadline = now(), visibility = 'closed'", False),
    "hidden": ("UPDATE leaderboard.leaderboard SET deadline = now(), visibility = 'hidden'", False),
    "owner-no": ("UPDATE leaderboard.leaderboard SET deadline = now()", False),
}
USERS = ("ada", "mallory")
BANNED = "mallory"
#: A submission by its kind, and whether a board with public code shows it.
KINDS = {"slow": True, "fast": True, **dict.fromkeys(("tested", "wrong", "hacked", "taken-back", "deleted"), False)}


@dataclass(frozen=True, kw_only=True)
class Member:
    """One submission of the matrix."""

    id: int
    board: str
    user: str
    kind: str

    @property
    def public(self) -> bool:
        """What the rule says of it."""
        return BOARDS[self.board][1] and self.user != BANNED and KINDS[self.kind]


def _submit(gate: Gate, board: str, user: str, kind: str) -> Member:
    code = f"# {board} {user} {kind}\nimport torch\n".encode()
    mode = "test" if kind == "tested" else "leaderboard"
    answer = gate.submit(f"/submission/{board}/CPU/{mode}", code, cli=f"{user}-token")
    number = answer.json["details"]["id"]
    if kind != "tested":
        seconds = 1e-6 * (9 - list(KINDS).index(kind))
        job = gate.bench.claim()
        gate.bench.store.complete(job, ranked(job, seconds))
        secret = gate.bench.claim()
        gate.bench.store.complete(secret, ranked(secret, seconds, passed=kind != "wrong"))
    return Member(id=number, board=board, user=user, kind=kind)


def _members(gate: Gate) -> Iterator[Member]:
    for board in BOARDS:
        gate.bench.board(board)
    for board in BOARDS:
        for user in USERS if board == "ended" else USERS[:1]:
            for kind in KINDS:
                member = _submit(gate, board, user, kind)
                if kind == "deleted":
                    assert gate.ask("DELETE", f"/user/submissions/{member.id}", cli=f"{user}-token").status == 200
                elif kind == "hacked":
                    gate.sql("UPDATE leaderboard.submission SET status = 'hacked' WHERE id = %s", member.id)
                elif kind == "taken-back":
                    gate.sql("SELECT runner.invalidate(submission_id => %s, reason => 'a test')", member.id)
                elif kind == "tested":
                    job = gate.bench.claim()
                    gate.bench.store.complete(job, ranked(job, passed=False))
                yield member


@pytest.fixture
def members(open_gate: Callable[..., Gate]) -> tuple[Gate, list[Member]]:
    """A gateway before every member."""
    gate = open_gate(gateway_requests_per_minute=100_000, gateway_public_url="https://kernels.example")
    for user in USERS:
        gate.user(user)
    made = list(_members(gate))
    gate.ask("POST", f"/admin/ban/{BANNED}", admin=ADMIN)
    for board, (statement, _) in BOARDS.items():
        if statement != "SELECT":
            gate.sql(f"{statement} WHERE name = '{board}'")
    answer = gate.send_json("POST", "/admin/leaderboards/owner-no/visibility", {"open_code": False}, admin=ADMIN)
    assert answer.json == {"status": "ok", "leaderboard": "owner-no", "open_code": False}
    odd = gate.send_json("POST", "/admin/leaderboards/ended/visibility", {"open_code": "no"}, admin=ADMIN)
    assert odd.status == 422
    return gate, made


def check_private_boards(gate: Gate) -> None:
    """In feeds, pictures, winners and JSON they are as none; the feed of all and the list have public ones alone."""
    stranger = Browser(gate)
    for path in ("feed", "picture", "winners", ""):
        query = "?format=json" if path == "" else ""
        for board, (statement, _) in BOARDS.items():
            answer = stranger.get(f"/board/{board}/{path}".rstrip("/") + query)
            if "visibility" in statement:
                none = stranger.get(f"/board/none/{path}".rstrip("/") + query)
                assert (answer.status, answer.body) == (404, none.body), (path, board)
            else:
                assert answer.status == (404 if path == "winners" and board != "ended" else 200), (path, board)
    for path in ("/feed", "/?format=json"):
        text = stranger.get(path).text
        assert [board for board in BOARDS if board in text.replace("closed_", "")] == ["ended", "open", "owner-no"]


def test_pages_api_and_export_open_the_same_code(
    members: tuple[Gate, list[Member]], database_url: str, tmp_path: Path
) -> None:
    """Of every member, to every viewer; an export is public for the same leaderboards, with the same scores.

    Nothing tells a private leaderboard from none.
    """
    gate, made = members
    viewers = {user: Browser(gate, f"{user}-token") for user in USERS}
    viewers |= {"stranger": Browser(gate), "operator": Browser(gate, ADMIN)}
    public = {member.id for member in made if member.public}
    assert len(public) == 2
    assert {row[0] for row in gate.sql("SELECT submission_id FROM runner.open_code")} == public
    for member in made:
        number = member.id
        paths = [f"/entry/{number}", f"/entry/{number}?format=json", f"/entry/{number}/code"]
        for viewer, browser in viewers.items():
            for path in [*paths, f"/diff?from={min(public)}&to={number}"]:
                answer = browser.get(path)
                assert answer.status == (200 if member.public else 404), (member, viewer, path)
                if not member.public and viewer == "stranger":
                    # As of a submission that never was.
                    never = browser.get(path.replace(str(number), "999"))
                    told = answer.text.replace(f"submission {number}", "submission 999")
                    assert told == never.text, (member, viewer, path)
            own = viewer in (member.user, "operator") and member.kind != "deleted"
            assert (browser.get(f"/view/{number}/code").status == 200) == own, (member, viewer)
    exported: set[int] = set()
    for board, (_, opens) in BOARDS.items():
        options = Options(target=tmp_path / board, boards=(board,), licence="mit")
        if not opens:
            with pytest.raises(DataError, match="whose code is not public"):
                export(database_url, options, lambda *_: None)
            continue
        export(database_url, options, lambda *_: None)
        rows = pq.read_table(tmp_path / board / "submissions.parquet").to_pylist()
        exported |= {row["submission_id"] for row in rows if row["score"] is not None}
    assert exported == public
    checked(Browser(gate).get(f"/entry/{max(public)}"))
    text = checked(Browser(gate).get(f"/diff?from={min(public)}&to={max(public)}"))
    assert "<del>-# ended ada slow\n</del><ins>+# ended ada fast\n</ins><span> import torch\n</span>" in text
    winners = checked(Browser(gate).get("/board/ended/winners"))
    assert [number for number in range(100) if f"/entry/{number}?" in winners] == [max(public)]
    board = checked(Browser(gate).get("/board/ended"))
    assert f'<a href="/entry/{max(public)}?gpu=CPU">2 lines</a>' in board
    check_private_boards(gate)
