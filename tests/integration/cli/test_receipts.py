"""`receipt`: printed, checked with and without a database."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from runner.base.receipts import Signer
from runner.daemon.receipts import with_receipt
from tests.integration.cli.conftest import Call
from tests.integration.store.conftest import Bench, bench, ranked

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
