"""Receipts on a real queue: signed by a daemon, stored with the result, compared with what the database says later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from runner.base.errors import ReceiptError
from runner.base.model import Job, JobResult, Progress, Receipt
from runner.extras import receipts
from runner.extras.queries import SHARED
from runner.extras.receipts import HostKey
from runner.store import Store
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import Gate, MakeRig, Rig
from tests.integration.store.conftest import ranked
from tests.support.waiting import PATIENCE_S

#: What an administrator may change behind a receipt, and the field in which that is noticed.
FORGERIES = {
    "UPDATE leaderboard.runs SET score = score / 2 WHERE NOT secret": "score_s",
    "UPDATE leaderboard.runs SET score = NULL WHERE NOT secret": "score_s",
    "UPDATE leaderboard.runs SET score = 'NaN' WHERE NOT secret": "score_s",
    'UPDATE leaderboard.runs SET system_info = \'{"runner": {"assurance": {"timing": "audited"}}}\'': "timing",
    "UPDATE leaderboard.submission SET user_id = 'v'": "user_id",
    "UPDATE leaderboard.code_files SET code = 'other'": "code_sha256",
    "UPDATE leaderboard.leaderboard SET name = 'c'": "leaderboard",
    "UPDATE runner.job SET host = 'another' WHERE NOT secret": "host",
    "UPDATE runner.job SET gpu_type = 'H100' WHERE NOT secret": "gpu_type",
    "UPDATE runner.job SET attempt = 2 WHERE NOT secret": "attempt",
    "UPDATE runner.job SET secret = NOT secret": "run",
}


def scored(job: Job, _cancel: threading.Event, _on_progress: Callable[[Progress], None]) -> JobResult:
    """Accept a ranked job with a score, at once: a receipt says when its run ended."""
    runs = (replace(run, start_offset_ns=0, end_offset_ns=1_000_000) for run in ranked(job).runs)
    return replace(ranked(job), runs=tuple(runs))


def keys(rig: Rig) -> Sequence[HostKey]:
    """The keys that the database lists."""
    with closing(Store(rig.url, application_name="test")) as store:
        return [HostKey(**key) for key in store.all(SHARED["host_keys"])]


def receipt(row: dict[str, Any]) -> Receipt:
    """The receipt of a row, as somebody kept it."""
    return receipts.read(receipts.text_of(row["statement"], row["key"], row["signature"]))


def rows(rig: Rig, submission: int) -> list[dict[str, Any]]:
    """What there is of the receipts of a submission, public first."""
    return rig.sql("SELECT * FROM runner.signed_result WHERE submission_id = %(id)s ORDER BY job_id", id=submission)


def looked_at(rig: Rig, receipt: Receipt) -> tuple[list[str], str]:
    """What the database says of a receipt that its keys confirm."""
    statement = receipts.check(receipt, keys(rig))
    signed = rig.sql(SHARED["signed_result"].sql.decode(), job_id=statement["job_id"])
    return receipts.standing(receipt, statement, signed[0] if signed else None)


def test_every_ranked_run_has_a_receipt_through_an_outage_and_a_change_of_keys(
    make_rig: MakeRig, proxy: Proxy, tmp_path: Path
) -> None:
    """One that waited in the spool too. What an earlier key signed stays true, until that key is revoked."""
    rig = make_rig(daemon_url=proxy.url, state_dir=tmp_path)
    proxy.open()
    gate = Gate()

    def script(job: Job, cancel: threading.Event, on_progress: Callable[[Progress], None]) -> JobResult:
        gate(job, cancel, on_progress)
        return scored(job, cancel, on_progress)

    rig.evaluator.script = script
    rig.start()
    submission = rig.submit(mode="leaderboard")
    assert gate.begun.wait(PATIENCE_S)
    proxy.shut()
    gate.go.set()
    rig.wait_for(lambda: rig.spool.count == 1, "the result is spooled")
    proxy.open()
    rig.wait_done(submission)
    rig.stop()
    found = rows(rig, submission)
    assert [row["run"] for row in found] == ["public", "secret"]
    first = [receipt(row) for row in found]
    assert [looked_at(rig, each) for each in first] == [([], "stands")] * 2

    (tmp_path / "receipt.key").unlink()
    later = make_rig(state_dir=tmp_path)
    later.evaluator.script = scored
    later.start()
    second = later.submit(mode="leaderboard", code=b"other")
    later.wait_done(second)
    old, new = keys(rig)
    assert (old.replaced_at is not None, new.replaced_at) == (True, None)
    assert {row["key"] for row in rows(rig, second)} == {new.key}
    assert looked_at(rig, first[0]) == ([], "stands")

    rig.sql("SELECT runner.revoke_key(%(key)s, 'stolen')", key=old.key)
    with pytest.raises(ReceiptError, match="stolen"):
        looked_at(rig, first[0])
    assert looked_at(rig, receipt(rows(rig, second)[0])) == ([], "stands")


def test_what_is_changed_or_taken_back_after_the_receipt_is_noticed(rig: Rig) -> None:
    """A receipt stays true: whoever checks it sees what the database says otherwise, and what no longer counts."""
    rig.evaluator.script = scored
    rig.start()
    submission = rig.submit(mode="leaderboard")
    rig.wait_done(submission)
    rig.sql("INSERT INTO leaderboard.user_info (id, user_name) VALUES ('v', 'v')")
    first = receipt(rows(rig, submission)[0])
    noticed = {}
    for forgery in FORGERIES:
        # In a transaction that is undone: the view sees its own changes.
        with psycopg.connect(rig.url, row_factory=dict_row) as connection:
            connection.execute(forgery.encode())
            row = connection.execute("SELECT * FROM runner.signed_result ORDER BY job_id LIMIT 1").fetchone()
            connection.rollback()
        wrong, _ = receipts.standing(first, receipts.check(first, keys(rig)), row)
        noticed[forgery] = [line.partition(":")[0] for line in wrong]
    assert {forgery: fields for forgery, fields in noticed.items() if FORGERIES[forgery] not in fields} == {}
    assert looked_at(rig, first) == ([], "stands")

    rig.sql("SELECT runner.rerun(submission_id => %(id)s, reason => 'again')", id=submission)
    rig.wait_done(submission)
    wrong, standing = looked_at(rig, first)
    assert (wrong, standing.partition(":")[0]) == ([], "counts no more (replaced)")
    again = receipt(rows(rig, submission)[2])
    assert looked_at(rig, again) == ([], "stands")
    rig.sql("SELECT runner.invalidate(submission_id => %(id)s, reason => 'a bug')", id=submission)
    assert looked_at(rig, again) == ([], "counts no more (invalidated): taken out of the ranking: a bug")
    rig.sql("SELECT runner.delete_submission(%(id)s)", id=submission)
    assert looked_at(rig, again) == ([], "this database has no such result: it was deleted, or is another site's")
