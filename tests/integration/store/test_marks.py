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

from runner.model import Verdict
from runner.store import Store, queries
from tests.integration.store.conftest import Bench, result, run_record
from tests.integration.store.test_plans import JOBS, TYPES, Cost, Meter, load, meter  # noqa: F401 - a fixture
from tests.integration.store.test_submit import one
from tests.support.waiting import PATIENCE_S, wait_until

Db = psycopg.Connection[dict[str, Any]]
#: Enough claims for three steps of a mark, whatever their number is before.
THREE_STEPS = 3 * 31
WORK = {
    "host": "h",
    "gpu_types": list(TYPES),
    "lease_s": 60,
    "at_most": None,
    "instance": "h",
    "unranked": [],
}
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


def steps(bench: Bench, db: Db, *, free: int = 0, claims: int = THREE_STEPS * len(TYPES)) -> None:
    """Claims that find nothing: enough of them to move every mark."""
    for _ in range(claims):
        db.execute("SELECT FROM runner.claim('h', %s, %s, 60, 0, 'h')", (list(TYPES), [free] * len(TYPES)))


def test_a_claim_costs_the_same_behind_a_held_snapshot(
    bench: Bench,
    db: Db,
    snapshot: psycopg.Connection[Any],
    meter: Meter,  # noqa: F811 - the fixture
) -> None:
    """After 90,000 jobs went through, and after all 100,000: at most twice the pages of before."""
    bench.board("identity", *TYPES)
    bench.register("h", *TYPES)
    db.execute("ALTER TABLE runner.job SET (autovacuum_enabled = off)")
    bench.submit(gpu_types=["L4"])
    load(db, JOBS)
    snapshot.execute("SELECT count(*) FROM runner.job")
    full = {**WORK, "free": [1] * len(TYPES)}
    before = meter.cost(queries.CLAIM.sql, full)
    # The marks begin at the first claims of a class.
    steps(bench, db, free=1)
    for gpu_type in TYPES:
        for priority in (0, 1):
            db.execute("SELECT runner.move_mark(%s, %s)", (gpu_type, priority))
    db.execute(WENT_THROUGH.encode())
    far = meter.cost(queries.CLAIM.sql, full)
    assert far.pages > 10 * before.pages, "the snapshot keeps nothing"

    def after() -> Cost:
        """What a claim costs some claims later. Transactions of other tests stop marks until they end."""
        steps(bench, db, free=1)
        return meter.cost(queries.CLAIM.sql, full)

    wait_until(lambda: after().pages <= 2 * before.pages, f"a claim costs little more than {before}")
    assert after().walked == {}

    db.execute(WENT_THROUGH.replace("p.part < 10", "true").encode())
    wait_until(lambda: after().pages <= 2 * before.pages, f"an empty claim costs little more than {before}")
    snapshot.rollback()


def moves_to(db: Db, job_id: int) -> None:
    """Wait until the mark of CPU jobs is there. Transactions of other tests, in other databases, stop it meanwhile."""
    wait_until(lambda: moved(db) == job_id, f"the mark is at {job_id}")


def moved(db: Db, times: int = 3) -> int:
    """The id at the mark of CPU jobs, after so many steps."""
    for _ in range(times):
        db.execute("SELECT runner.move_marks('CPU', 0)")
    found = one(db, "SELECT job_id FROM runner.mark WHERE gpu_type = 'CPU' ORDER BY priority DESC, seq DESC LIMIT 1")
    return int(found["job_id"])


def test_a_mark_waits_for_transactions_that_have_stored_a_job(bench: Bench, db: Db, database_url: str) -> None:
    """A submission that is not committed has a lower place than those after it: it is found when it is."""
    bench.board()
    for _ in range(3):
        bench.submit()
        bench.claim()
    with psycopg.connect(database_url) as slow:
        late = slow.execute("SELECT runner.submit('identity', 'slow', 'x.py', 'x', 'test')").fetchall()[0][0]
        for _ in range(3):
            bench.submit(user_id="quick")
            bench.claim()
        assert moved(db, 9) == 0
        slow.commit()
    wait_until(lambda: moved(db) > 0, "the mark moves")
    assert bench.claim().submission_id == late
    assert bench.idle()


@pytest.mark.parametrize("how", ["released", "evicted", "failed", "reclaimed"])
def test_a_job_that_waits_again_is_found_before_the_mark(bench: Bench, db: Db, how: str) -> None:
    """It keeps its place; the mark goes back there, and on when it is gone."""
    bench.board()
    ids = [bench.submit(user_id=f"u{number}") for number in range(4)]
    jobs = [bench.claim() for _ in range(3)]
    moves_to(db, jobs[-1].id + 1)
    if how == "released":
        bench.store.release(jobs[1], reason="its host stops")
    elif how == "evicted":
        assert bench.store.evict(jobs[1].id, reason="its host hangs")
    elif how == "failed":
        bench.store.fail(jobs[1], error="the engine hung", report=None, slot="gpu0")
    else:
        db.execute("UPDATE runner.job SET lease_expires_at = now() WHERE id = %s", (jobs[1].id,))
        assert len(bench.store.reclaim()) == 1
    db.execute("UPDATE runner.job SET not_before = NULL, avoid_until = NULL WHERE id = %s", (jobs[1].id,))
    assert [bench.claim().submission_id for _ in range(2)] == [ids[1], ids[3]]
    assert bench.idle()
    moves_to(db, jobs[-1].id + 2)


def test_a_job_that_waits_again_beside_a_held_mark_comes_in_the_next_turn(
    bench: Bench, db: Db, database_url: str
) -> None:
    """No host waits for the transaction that holds it, and the job is not lost."""
    bench.board()
    bench.submit()
    bench.submit(user_id="other")
    job = bench.claim()
    moves_to(db, job.id + 1)
    with psycopg.connect(database_url) as forgotten:
        forgotten.execute("SELECT FROM runner.mark FOR UPDATE")
        bench.store.release(job, reason="its host stops")
        assert bench.claim().submission_id == 2
        assert bench.claim().id == job.id


def test_a_mark_moves_behind_a_snapshot_that_is_held(bench: Bench, db: Db, snapshot: psycopg.Connection[Any]) -> None:
    """A transaction that has only read stops no mark."""
    bench.board()
    snapshot.execute("SELECT count(*) FROM runner.job")
    bench.submit()
    job = bench.claim()
    moves_to(db, job.id + 1)


def test_leases_that_ended_long_ago_are_not_walked(
    bench: Bench,
    db: Db,
    snapshot: psycopg.Connection[Any],
    meter: Meter,  # noqa: F811 - the fixture
) -> None:
    """20,000 jobs whose leases would have ended cost an idle claim nothing; one that ends now is reported."""
    bench.board("identity", *TYPES)
    bench.register("h", *TYPES)
    db.execute("ALTER TABLE runner.job SET (autovacuum_enabled = off)")
    bench.submit(gpu_types=["L4"])
    snapshot.execute("SELECT count(*) FROM runner.job")
    nothing = {**WORK, "free": [0] * len(TYPES)}
    before = meter.cost(queries.CLAIM.sql, nothing)
    load(db, JOBS)
    db.execute(WENT_THROUGH.encode())
    assert meter.cost(queries.CLAIM.sql, nothing).pages > 100

    def walks_little() -> bool:
        """Whether it is so some claims later."""
        steps(bench, db, claims=THREE_STEPS)
        return meter.cost(queries.CLAIM.sql, nothing).pages <= 2 * before.pages + 10

    wait_until(walks_little, f"an idle claim costs little more than {before}")
    job = bench.claim("L4", host="h", instance="h")
    db.execute("UPDATE runner.job SET lease_expires_at = now() WHERE id = %s", (job.id,))
    claims = bench.store.claim(host="h", slots={}, lease_s=60, instance="h")
    assert claims.overdue
    assert [found.job_id for found in bench.store.reclaim()] == [job.id]


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
    """Move the mark until told to stop."""
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.is_set():
            connection.execute("SELECT runner.move_marks('CPU', 0)")


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


def test_no_job_is_left_behind_a_mark_that_others_move(bench: Bench, db: Db, database_url: str) -> None:
    """Beside slow and quick submitters, hosts that give jobs back, and a mark that moves all the time."""
    bench.board()
    stop = threading.Event()
    stores = [bench.other() for _ in range(2)]
    left = "SELECT count(*) FROM runner.job WHERE state <> 'done'"
    with ThreadPoolExecutor(7) as pool:
        submitters = [pool.submit(submit_some, database_url, number) for number in range(4)]
        others = [pool.submit(serve, store, number, stop) for number, store in enumerate(stores)]
        others.append(pool.submit(keep_moving, database_url, stop))
        try:
            for future in submitters:
                future.result(timeout=PATIENCE_S)
            until_s = time.monotonic() + PATIENCE_S
            while one(db, left)["count"] and time.monotonic() < until_s and not any(each.done() for each in others):
                time.sleep(0.05)
        finally:
            stop.set()
        for future in others:
            future.result(timeout=PATIENCE_S)
    for store in stores:
        store.close()
    assert one(db, left)["count"] == 0
    assert one(db, "SELECT count(*) FROM runner.job")["count"] == 160
    wait_until(lambda: moved(db) > 0, "the mark moves")
