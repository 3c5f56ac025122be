"""`kernel-runner data` and `kernel-runner receipt`: what the commands print, and how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from runner.base.receipts import Signer
from runner.daemon.receipts import with_receipt
from tests.integration.cli.conftest import Call
from tests.integration.extras.data.conftest import Filler
from tests.integration.store.conftest import Bench, bench, ranked


@pytest.fixture
def filler(database_url: str) -> Iterator[Filler]:
    """Writes submissions; there is a leaderboard that is over, and one that is open."""
    with psycopg.Connection[dict[str, Any]].connect(database_url, autocommit=True, row_factory=dict_row) as connection:
        made = Filler(connection)
        board = made.board("gemv")
        made.board("running", running=True)
        made.user("ada")
        made.ranked(board, "ada", b"# good", "0.001")
        yield made


def test_an_export_is_made_verified_and_damaged(cli: Call, filler: Filler, tmp_path: Path) -> None:
    """The flat file's path on stdout, counts on stderr or as JSON; 2 for an open leaderboard, 1 for damage."""
    target = tmp_path / "out"
    refused = cli("data", "export", target, "--licence", "mit")
    assert (refused.code, "running (open until" in refused.err, target.exists()) == (2, True, False)
    made = cli("data", "export", target, "--leaderboard", "gemv", "--licence", "mit")
    assert made.code == 0, made.err
    assert made.out.splitlines() == [str(target / "gemv_submissions.parquet")]
    assert "1 rows, 1 of them ranked; 1 codes" in made.err
    again = cli("data", "export", target, "--leaderboard", "gemv", "--licence", "mit", "--json")
    assert (again.document["rows"], again.document["codes"]) == (1, 1)
    whole = cli("data", "verify", target)
    assert (whole.code, whole.out) == (0, "")
    (target / "runs.parquet").unlink()
    damaged = cli("data", "verify", target)
    assert (damaged.code, damaged.out) == (1, "runs.parquet is missing\n")
    assert cli("data", "verify", target, "--json").document["wrong"] == ["runs.parquet is missing"]


def test_lists_keys_and_notes(cli: Call, filler: Filler, tmp_path: Path) -> None:
    """What is wrong with one is said with the line."""
    (tmp_path / "list").write_text("# asked by mail\nuser ada # all of it\n")
    (tmp_path / "key").write_text("0123456789abcdef\n")
    options = ["--private", "--exclude", tmp_path / "list", "--identity", "pseudonym", "--key", tmp_path / "key"]
    made = cli("data", "export", tmp_path / "out", *options, "--note", "gemv=Noisy.", "--json")
    assert made.code == 0, made.err
    assert made.document["rows"] == 0
    assert made.document["excluded"]["by_user"] == 1
    (tmp_path / "list").write_text("user ada\nuser\n")
    wrong = cli("data", "export", tmp_path / "out", *options)
    assert (wrong.code, "line 2: 'user'" in wrong.err) == (2, True)
    assert cli("data", "export", tmp_path / "out", "--private", "--note", "gemv").code == 2


def test_check_ends_with_1_on_what_is_unusable(cli: Call, filler: Filler) -> None:
    """A table for people, every finding with its reason for programs."""
    clean = cli("data", "check")
    assert (clean.code, clean.out) == (0, "")
    assert "1 rows and 1 codes of 2 leaderboards checked, nothing found" in clean.err
    board = filler.db.execute("SELECT id FROM leaderboard.leaderboard WHERE name = 'gemv'").fetchone()
    assert board is not None
    bad = filler.ranked(board["id"], "ada", b"# bad", "-1", result={})
    shown = cli("data", "check", "--leaderboard", "gemv")
    assert shown.code == 1
    assert [line.split() for line in shown.out.splitlines() if "negative" in line] == [
        ["negative", "unusable", "1", "the", "score", "is", "negative", str(bad)]
    ]
    (finding,) = cli("data", "check", "--json").document["findings"]
    assert (finding["check"], finding["severity"], finding["submission_id"]) == ("negative", "unusable", bad)
    assert "-1" in finding["reason"]


__all__ = ["bench"]

OURS = Signer(bytes(32))


def test_a_receipt_is_printed_and_checked(cli: Call, call: Call, bench: Bench, tmp_path: Path) -> None:
    """Exit code 0 if it is true and stands, 1 if it is not or the database says otherwise, 2 for what is no file."""
    bench.board()
    bench.register("host-a", key=OURS.key)
    bench.submit(mode="leaderboard")
    job = bench.claim(instance="host-a")
    bench.store.complete(job, with_receipt(job, ranked(job), host="host-a", signer=OURS))
    file, keys = tmp_path / "receipt.json", tmp_path / "keys.json"
    file.write_text(cli("receipt", "show", job.id).out)
    (host,) = cli("host", "list", "--json").document
    keys.write_text(json.dumps(host["keys"]))
    said = cli("receipt", "verify", file)
    assert said.code == 0
    assert "host host-a signed: public run of submission 1 by user u1 to identity on CPU, 2.5e-06 s" in said.out
    assert "the result: stands" in said.out
    assert call("receipt", "verify", file, "--keys", keys).code == 0
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute("UPDATE leaderboard.user_info SET is_banned = true")
        assert "the result: does not rank: its user is banned" in cli("receipt", "verify", file).out
        connection.execute("UPDATE leaderboard.runs SET score = 1e-6 WHERE score IS NOT NULL")
    edited = cli("receipt", "verify", file)
    assert edited.code == 1
    assert "score_s: the receipt says 2.5e-06, the database 1e-06" in edited.out
    changed = tmp_path / "changed.json"
    for text in (file.read_text().replace("2.5e-06", "1.0e-06"), "é", ""):
        changed.write_text(text, encoding="utf-8")
        assert call("receipt", "verify", changed, "--keys", keys).code == 1
    assert cli("receipt", "show", 999).code == 2
    assert cli("receipt", "verify", tmp_path / "none").code == 2
    assert call("receipt", "verify", file, "--keys", file).code == 2
