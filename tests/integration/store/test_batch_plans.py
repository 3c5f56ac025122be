"""What batches cost when they are large: pages and index entries with 24,000 items, whatever the planner knows.

Nothing is timed. The connection that works has made its plans when there was nothing, and keeps them.
"""

from __future__ import annotations

import json

from psycopg.rows import dict_row

from runner.store.clean import to_jsonb
from runner.store.queries import QUERIES
from runner.store.results import _result
from tests.integration.store.conftest import Bench, Db
from tests.integration.store.meter import Meter
from tests.integration.store.test_batches import found, submit
from tests.integration.store.test_batches import item as make

GROUPS = 3_000
PER_GROUP = 8
#: A batch of many groups, the first third of which is over, and another owner's texts and items.
LOAD = f"""\
INSERT INTO runner.source (hash, text) SELECT sha256(n::text::bytea), 'text ' || n FROM generate_series(1, 1000) n;
INSERT INTO runner.job (batch_id, user_id, gpu_type, mode, secret, turn, state, verdict, finished_at)
SELECT b.id, session_user, 'CPU', 'benchmark', false, 1000 + n,
       CASE WHEN n <= {GROUPS // 3} THEN 'done' ELSE 'queued' END,
       CASE WHEN n <= {GROUPS // 3} THEN 'accepted' END, CASE WHEN n <= {GROUPS // 3} THEN now() END
FROM generate_series(1, {GROUPS}) n, runner.batch b WHERE b.name = 'large' ORDER BY n;
INSERT INTO runner.job_group (job_id, reference, entry_point, settings)
SELECT j.id, sha256((1 + j.id % 1000)::text::bytea), 'Model', '{{}}' FROM runner.job j
WHERE j.batch_id = (SELECT id FROM runner.batch WHERE name = 'large')
ON CONFLICT DO NOTHING;
INSERT INTO runner.item (batch_id, number, owner_id, key, payload, job_id, reference, candidate, entry_point)
SELECT b.id, 100 + row_number() OVER (ORDER BY j.id, n), b.owner_id,
       'large ' || j.id || ' ' || n,
       sha256((j.id || ' ' || n)::bytea), j.id, sha256((1 + j.id % 1000)::text::bytea),
       sha256((1 + (j.id + n) % 1000)::text::bytea), 'ModelNew'
FROM runner.job j JOIN runner.batch b ON b.id = j.batch_id, generate_series(1, {PER_GROUP}) n
WHERE b.name = 'large' AND j.turn >= 1000;
INSERT INTO runner.item_result (item_id, batch_id, seq, owner_id, payload, verdict, attempt, result)
SELECT i.id, i.batch_id, 100 + row_number() OVER (ORDER BY i.id), i.owner_id, i.payload, 'accepted', 1,
       '{{"verdict": "accepted"}}'
FROM runner.item i JOIN runner.job j ON j.id = i.job_id WHERE j.state = 'done' AND j.turn >= 1000;
"""  # noqa: S608 - numbers of ours
PAGE = b"SELECT * FROM runner.batch_results('large', after => %(after)s::bigint, at_most => 100)"
KEYS = b"SELECT * FROM runner.batch_results(keys => %(keys)s::text[])"
PROGRESS = b"SELECT * FROM runner.batch_progress('large')"
SUBMIT = b"SELECT * FROM runner.submit_batch(items => %(items)s::jsonb, gpu_type => 'CPU', batch => 'large')"
WORK = {"host": "h", "gpu_types": ["CPU"], "free": [1], "lease_s": 60, "instance": None}


def check(meter: Meter, bench: Bench, done: int) -> None:
    """Every statement reads a part that does not grow with the batch."""
    claim = meter.cost(QUERIES["claim"].sql, WORK)
    assert claim.pages < 400, claim
    assert max(claim.entries.values()) < 100, claim
    assert claim.walked == {}
    first = meter.cost(PAGE, {"after": 0})
    last = meter.cost(PAGE, {"after": max(0, done - 100)})
    for page in (first, last):
        assert page.pages < 100 * 12, page
        assert page.entries.get("item_result_batch_id_seq_key", 0) <= 110, page
        assert page.walked == {}
    items = json.dumps([make(10_000 + n, n // 8) | {"key": f"new {n}"} for n in range(100)])
    for query, parameters, pages in (
        (PROGRESS, {}, 60),
        (KEYS, {"keys": [f"large {n} 1" for n in range(100)]}, 100 * 20),
        # An item is some ten index entries of its own, and so is its text.
        (SUBMIT, {"items": items}, 100 * 120),
    ):
        cost = meter.cost(query, parameters)
        assert cost.pages < pages, (query, cost)
        # Two for each item that is submitted.
        assert max(cost.entries.values(), default=0) < 300, (query, cost)
        assert cost.walked == {}, (query, cost)
    job = bench.claim(host="h")
    commit = meter.cost(QUERIES["complete"].sql, {"results": to_jsonb([_result(job, found(job))])})
    assert commit.pages < 500, commit
    assert max(commit.entries.values()) < 100, commit
    assert commit.walked == {}, commit
    bench.store.release(job, reason="the check is over")


def test_a_large_batch_costs_no_more_than_a_small_one(bench: Bench, db: Db, meter: Meter) -> None:
    """With plans of empty tables, with none at all, and with fresh statistics."""
    db.execute("INSERT INTO runner.gpu_type (name, vendor) VALUES ('CPU', 'none')")
    submit(db, [make(n, n // 8) for n in range(64)], batch="large")
    db.execute("ANALYZE")
    check(meter, bench, 0)
    db.execute(LOAD.encode())
    done = 100 + GROUPS // 3 * PER_GROUP
    check(meter, bench, done)
    with Db.connect(bench.url, autocommit=True, row_factory=dict_row) as fresh:
        check(Meter(fresh), bench, done)
    db.execute("ANALYZE")
    check(meter, bench, done)
