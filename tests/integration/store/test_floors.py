"""Claims behind a held snapshot: what they read does not grow with the jobs since then, and none is missed.

A snapshot that stays open (a dump, a standby's feedback, a forgotten transaction) keeps every index entry of a job that
was claimed since. Nothing is timed: counted are the pages that a claim touches.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from runner.base.model import Verdict
from runner.store import Store
from runner.store.queries import QUERIES
from tests.integration.store.conftest import Bench, Db, count, result, rows, run_record, value
from tests.integration.store.meter import NOT_AGED, Meter
from tests.integration.store.test_plans import JOBS, TYPES, load
from tests.support.waiting import PATIENCE_S, wait_until

WORK = {"host": "h", "gpu_types": list(TYPES), "lease_s": 60, "instance": "h"}
#: The next claim looks for aged jobs by no chance, and for what is due.
LOOKS = (
    b"""
WITH looks AS (UPDATE runner.sweep SET looked_at = '-infinity', swept_at = now()) """
    + NOT_AGED
)
#: As a claim and a result write them, in the order of the queue; a tenth of the jobs of each class stays.
WENT_THROUGH = """\
WITH first AS (
    SELECT id FROM (
        SELECT id, ntile(10) OVER (PARTITION BY gpu_type, priority ORDER BY turn, id) AS part
        FROM runner.job WHERE state = 'queued') AS p
    WHERE p.part < 10
)
UPDATE runner.job j SET state = 'running', lease_owner = 'h', lease_expires_at = now() - interval '1 hour',
    started_at = now(), attempt = attempt + 1 FROM first WHERE j.id = first.id;
UPDATE runner.clock c SET seq = seq + 1, turn = (
    SELECT max(j.turn) FROM runner.job j
    WHERE j.gpu_type = c.gpu_type AND j.priority = c.priority AND j.state = 'running');
UPDATE runner.job SET state = 'done', verdict = 'accepted', lease_owner = NULL, lease_expires_at = NULL,
    finished_at = now() WHERE state = 'running';
"""


@pytest.fixture
def snapshot(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection for a transaction that keeps what it saw first."""
    with psycopg.connect(database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield connection


def move(db: Db, times: int = 2) -> None:
    """Move the floors; after twice, they are at the clocks of before, or at the first job that waits."""
    for _ in range(times):
        db.execute("SELECT runner.move_floors()")


def test_a_claim_costs_the_same_behind_a_held_snapshot(
    bench: Bench, db: Db, snapshot: psycopg.Connection[Any], meter: Meter
) -> None:
    """Nine tenths of 60,000 jobs went through, then all: at most three times the pages of before, leases included."""
    bench.board("identity", *TYPES)
    bench.register("h", *TYPES)
    db.execute("ALTER TABLE runner.job SET (autovacuum_enabled = off)")
    bench.submit(gpu_types=["L4"])
    load(db, 2 * JOBS)
    snapshot.execute("SELECT count(*) FROM runner.job")
    full = {**WORK, "free": [1] * len(TYPES)}
    before = meter.cost(QUERIES["claim"].sql, full, after=LOOKS)
    db.execute(WENT_THROUGH.encode())
    far = meter.cost(QUERIES["claim"].sql, full, after=LOOKS)
    assert far.pages > 4 * before.pages, "the snapshot keeps nothing"
    for part in ("p.part < 10", "true"):
        db.execute(WENT_THROUGH.replace("p.part < 10", part).encode())
        move(db)
        after = meter.cost(QUERIES["claim"].sql, full, after=LOOKS)
        assert after.pages <= 3 * before.pages, (part, before, after)
        assert after.walked == {}
    snapshot.rollback()


def test_a_job_that_is_committed_late_is_found(queue: Bench, db: Db, database_url: str) -> None:
    """At once, if its transaction was short; else when the floor is moved next, which goes back to it."""
    for moves in (1, 2):
        with psycopg.connect(database_url) as slow:
            late = slow.execute("SELECT runner.submit('identity', 'slow', 'x.py', 'x', 'test')").fetchall()[0][0]
            for _ in range(3):
                queue.submit(user_id="quick")
                queue.claim()
            move(db, moves)
            slow.commit()
        if moves > 1:
            assert queue.idle()
            move(db, 1)
        assert queue.claim().submission_id == late
        assert queue.idle()


@pytest.mark.parametrize("how", ["released", "failed", "reclaimed"])
def test_a_job_that_waits_again_is_found_at_once(queue: Bench, db: Db, how: str) -> None:
    """Wherever the floor is: it is first of those that are due now."""
    ids = [queue.submit(user_id=f"u{number}") for number in range(4)]
    queue.submit(user_id="u0")
    jobs = [queue.claim() for _ in range(4)]
    again = queue.claim()
    move(db)
    assert again.submission_id not in ids
    if how == "released":
        queue.store.release(jobs[1], reason="its host stops")
    elif how == "failed":
        queue.store.fail(jobs[1], error="the engine hung", report=None, slot="gpu0")
    else:
        db.execute("UPDATE runner.job SET lease_expires_at = now() WHERE id = %s", (jobs[1].id,))
        assert len(queue.store.reclaim()) == 1
    db.execute("UPDATE runner.job SET not_before = NULL, avoid_until = NULL WHERE id = %s", (jobs[1].id,))
    queue.submit(user_id="new")
    assert queue.claim().submission_id == ids[1]


def test_a_lease_that_ended_long_ago_is_found_by_the_next_sweep(queue: Bench, db: Db) -> None:
    """Claims in between look at the last two minutes."""
    queue.submit()
    job = queue.claim()
    assert list(queue.store.reclaim()) == []
    db.execute("UPDATE runner.job SET lease_expires_at = now() - interval '1 hour' WHERE id = %s", (job.id,))
    assert not queue.overdue()
    assert list(queue.store.reclaim()) == []
    db.execute("UPDATE runner.sweep SET swept_at = now() - interval '121 seconds'")
    assert queue.overdue()
    assert [found.job_id for found in queue.store.reclaim()] == [job.id]


def submit_some(url: str, number: int) -> None:
    """Submissions of several users; some are committed late."""
    choose = random.Random(number)  # noqa: S311 - any mixture will do
    with psycopg.connect(url) as connection:
        for serial in range(40):
            user = f"u{number}.{serial % 7}"
            connection.execute("SELECT runner.submit('identity', %s, 'x.py', 'x', 'test')", (user,))
            time.sleep(choose.choice((0.0, 0.0, 0.02, 0.1)))
            connection.commit()


def keep_moving(url: str, stop: threading.Event) -> None:
    """Move the floor until told to stop."""
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.is_set():
            connection.execute("SELECT runner.move_floors()")


def serve(store: Store, number: int, stop: threading.Event) -> None:
    """A host that gives some jobs back until told to stop."""
    choose = random.Random(number)  # noqa: S311 - any mixture will do
    while not stop.is_set():
        for job in store.claim(host=f"h{number}", slots={"CPU": 2}, lease_s=600).jobs:
            if choose.random() < 0.3:
                time.sleep(choose.choice((0.0, 0.05)))
                store.release(job, reason="its host stops")
            else:
                store.complete(job, result(Verdict.ACCEPTED, run_record()))


def test_no_job_is_left_behind_a_floor_that_others_move(queue: Bench, db: Db, database_url: str) -> None:
    """Beside slow and quick submitters, hosts that give jobs back, and a floor that moves all the time."""
    stop = threading.Event()
    stores = [queue.other() for _ in range(2)]
    left = "SELECT id FROM runner.job WHERE state <> 'done'"
    with ThreadPoolExecutor(7) as pool:
        submitters = [pool.submit(submit_some, database_url, number) for number in range(4)]
        others = [pool.submit(serve, store, number, stop) for number, store in enumerate(stores)]
        others.append(pool.submit(keep_moving, database_url, stop))
        try:
            for future in submitters:
                future.result(timeout=PATIENCE_S)
            wait_until(lambda: not rows(db, left) or any(each.done() for each in others), "nothing is left")
        finally:
            stop.set()
        for future in others:
            future.result(timeout=PATIENCE_S)
    for store in stores:
        store.close()
    assert rows(db, left) == []
    assert count(db, "runner", "job") == 160
    assert value(db, "SELECT max(floor) FROM runner.clock") > 0
