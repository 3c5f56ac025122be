"""Receipts in an export: whoever has one sees what was changed in the database before."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from runner.base.errors import DataError
from runner.base.receipts import Signer
from runner.daemon.receipts import with_receipt
from runner.extras.data.people import Identity
from runner.extras.data.verify import signed, verify
from runner.extras.receipts import read_keys
from tests.integration.extras.data.conftest import exported, no_progress
from tests.integration.store.conftest import Bench, bench, ranked, store

__all__ = ["bench", "store"]

OURS = Signer(bytes(32))


def test_an_export_with_receipts_shows_what_an_administrator_changed(bench: Bench, tmp_path: Path) -> None:
    """A score, a user, a receipt of another host, one that is gone; and pseudonyms stay pseudonyms."""
    bench.board()
    bench.register("host-a", key=OURS.key)
    for user_id, score_s in (("u1", 2e-6), ("u2", 3e-6)):
        bench.submit(mode="leaderboard", user_id=user_id, code=f"# {user_id}".encode())
        for _ in range(2):
            job = bench.claim(instance="host-a")
            bench.store.complete(job, with_receipt(job, ranked(job, score_s), host="host-a", signer=OURS))
    folder = tmp_path / "export"

    def faults(statement: str = "SELECT", keys: str | None = None) -> list[str]:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            connection.execute(statement.encode())
        exported(bench.url, folder, receipts=True)
        return list(verify(folder, no_progress, None if keys is None else read_keys(keys)))

    assert faults() == []
    assert signed(folder) == (2, 2)
    assert pq.read_table(folder / "receipts.parquet").column("run").to_pylist() == ["public", "secret"] * 2
    assert "`receipts.parquet`" in (folder / "README.md").read_text(encoding="utf-8")
    others = {"host": "host-a", "key": "0" * 64, "registered_at": "2026-01-01T00:00:00Z"}
    assert "which is no host's" in faults(keys=json.dumps([others]))[0]
    assert faults("UPDATE leaderboard.runs SET score = 1e-6 WHERE score = 2e-6") == [
        "receipts.parquet: job 1: score_s: the receipt says 2e-06, the export 1e-06"
    ]
    assert faults("UPDATE leaderboard.submission SET user_id = 'u2' WHERE user_id = 'u1'") == [
        "receipts.parquet: job 1: user_id: the receipt says 'u1', the export 'u2'",
        "receipts.parquet: job 1: score_s: the receipt says 2e-06, the export 1e-06",
        "receipts.parquet: job 2: user_id: the receipt says 'u1', the export 'u2'",
    ]
    assert faults("DELETE FROM runner.receipt WHERE job_id < 3") == []
    assert signed(folder) == (1, 2)
    sentence = "which is a key of host host-b; expected a key of host 'host-a'"
    assert sentence in faults("UPDATE runner.host_key SET host = 'host-b'")[0]
    exported(bench.url, folder)
    assert verify(folder, no_progress) == []
    assert signed(folder) == (0, 2)
    assert not (folder / "receipts.parquet").exists()
    with pytest.raises(DataError, match="receipts name users"):
        exported(bench.url, folder, receipts=True, identity=Identity.PSEUDONYM, key=bytes(16))
