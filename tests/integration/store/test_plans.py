"""What a deep queue and large batches cost: how much statements read, whatever the planner knows.

Nothing is timed. Counted are the pages and the index entries that a statement touches, and rows read by walking whole
tables, of which there must be none. The connection that works has made its plans when there was nothing, and keeps
them: that is how a daemon meets a full queue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import pytest
from psycopg.rows import dict_row

from runner.base.model import Verdict
from runner.extras.boards import queries as boards
from runner.extras.discord import queries as discord
from runner.extras.gateway import queries as gateway
from runner.extras.queries import SHARED
from runner.extras.webhooks import queries as webhooks
from runner.store.clean import to_jsonb
from runner.store.queries import QUERIES
from runner.store.results import _result
from tests.integration.store.conftest import Bench, Db, ranked, result, run_record
from tests.integration.store.meter import AGED, Meter
from tests.integration.store.test_batches import found, submit
from tests.integration.store.test_batches import item as make
from tests.support.deep_queue import fill

#: Waiting jobs of the deepest queue; and of the others, where a statement that read them all would be as conspicuous.
JOBS, MANY = 30_000, 10_000
USERS = 2000
TYPES = ("A100", "B200", "H100", "L4", "MI300")
CHURN = 8_000
#: The first in line of every class have been through the queue, and their dead rows are still there.
CHURNED = f"""\
WITH first AS (
    SELECT id FROM runner.job WHERE state = 'queued' ORDER BY priority DESC, turn, id LIMIT {CHURN}
), claimed AS (
    UPDATE runner.job j SET state = 'running', lease_owner = 'h', lease_expires_at = now() + interval '1 hour',
        started_at = now(), attempt = attempt + 1
    FROM first WHERE j.id = first.id RETURNING j.id
)
SELECT count(*) FROM claimed;
UPDATE runner.job SET state = 'done', verdict = 'accepted', lease_owner = NULL, lease_expires_at = NULL,
    finished_at = now() WHERE lease_expires_at IS NOT NULL;
"""  # noqa: S608 - numbers of ours
SUBMIT = b"SELECT runner.submit('identity', 'user 5', 'x.py', 'pass', 'test', ARRAY['L4'])"
#: The next job of a type has waited for a minute.
OLDER = b"""
UPDATE runner.job SET created_at = now() - interval '1 minute' WHERE id = (
    SELECT id FROM runner.job WHERE state = 'queued' AND gpu_type = 'L4' AND NOT checked
    ORDER BY priority DESC, turn, id LIMIT 1)
"""


def load(db: Db, jobs: int) -> None:
    """Fill the queue with so many waiting jobs."""
    fill(db, jobs=jobs, users=USERS, gpu_types=TYPES)


def check(meter: Meter, bench: Bench) -> None:
    """Every statement of a daemon, and those of frontends that must be quick, reads a bounded part of the queue."""
    work = {"host": "h", "gpu_types": list(TYPES), "lease_s": 60, "instance": "h"}
    for free in (1, 4):
        claim = meter.cost(QUERIES["claim"].sql, {**work, "free": [free] * len(TYPES)})
        # The best of each type, what is taken, and what died so lately that some transaction may still see it.
        assert claim.entries["job_ready_idx"] < 100, claim
        # Dead rows cost no more than the index's pages that they fill, about 150 of them in each.
        assert claim.pages < 600, claim
        assert claim.walked == {}
    # One claim a second of all hosts looks at what is due.
    for looked_at, most in ((b"now()", 40), (b"'-infinity'", 400)):
        # A host that was not seen lately is noted, and counts the others.
        looked = (
            b"WITH seen AS (UPDATE runner.host SET last_seen = now()) UPDATE runner.sweep SET looked_at = " + looked_at
        )
        nothing = meter.cost(QUERIES["claim"].sql, {**work, "free": [0] * len(TYPES)}, after=looked)
        assert nothing.pages < most, (looked_at, nothing)

    aged = meter.cost(QUERIES["claim"].sql, {**work, "free": [1] * len(TYPES)}, after=AGED)
    assert aged.entries.get("job_ready_idx", 0) < 100, aged
    assert aged.pages < 600, aged
    assert aged.walked == {}

    jobs = [bench.claim("L4", host="h") for _ in range(8)]
    held = {"ids": [job.id for job in jobs], "attempts": [job.attempt for job in jobs]}
    results = to_jsonb([_result(job, result(Verdict.ACCEPTED, run_record())) for job in jobs])
    meter.db.execute(OLDER)
    given = bench.store.take_check(host="h", gpu_types=["L4"], instance="h")
    assert given is not None
    waiting = to_jsonb(_result(given, result(Verdict.COMPILE_ERROR, run_record(passed=False))))
    failure = {**vars(jobs[0]), "slot": "s", "error": "x", "report": None}
    statements: Sequence[tuple[bytes, Mapping[str, object], int]] = [
        (QUERIES["heartbeat"].sql, {"host": "h", "lease_s": 60, "instance": "h", **held}, 400),
        (QUERIES["complete"].sql, {"results": results}, 1000),
        # The first 200 of each type.
        (QUERIES["take_check"].sql, {"host": "h", "gpu_types": list(TYPES), "instance": "h"}, 2000),
        (QUERIES["complete_waiting"].sql, {"host": "h", "instance": "h", "result": waiting}, 300),
        (QUERIES["fail"].sql, failure, 300),
        (QUERIES["release"].sql, {**vars(jobs[0]), "reason": "x"}, 250),
        # A sweep may be due, which moves the floor of every class.
        (QUERIES["reclaim"].sql, {}, 500),
        (QUERIES["recover"].sql, {"host": "other", "instance": "other", **held, "died": True}, 200),
        (QUERIES["cancel"].sql, {"submission_id": jobs[1].submission_id, "user_id": None}, 200),
        (QUERIES["hosts"].sql, {}, 100),
        (SUBMIT, {}, 250),
        (QUERIES["status"].sql, {"submission_id": jobs[0].submission_id}, 200),
        # It counts the jobs in front, up to a thousand of them.
        (QUERIES["status"].sql, {"submission_id": JOBS}, 800),
    ]
    for query, parameters, pages in statements:
        cost = meter.cost(query, parameters)
        assert cost.pages < pages, (query, cost)
        assert cost.walked == {}, (query, cost)
    for job in jobs:
        bench.store.release(job, reason="the check is over")


@pytest.mark.alone  # snapshots of other tests keep dead rows
def test_a_deep_queue_costs_no_more_than_a_short_one(bench: Bench, db: Db, meter: Meter) -> None:
    """With plans of an empty queue, with none at all, with fresh statistics, and with 8,000 dead rows in front."""
    bench.board("identity", *TYPES)
    bench.register("h", *TYPES)
    for _ in range(9):
        bench.submit(gpu_types=["L4"])
    db.execute("ANALYZE")
    check(meter, bench)
    load(db, JOBS)
    check(meter, bench)
    with Db.connect(bench.url, autocommit=True, row_factory=dict_row) as fresh:
        check(Meter(fresh), bench)
    db.execute("ANALYZE")
    check(meter, bench)
    db.execute(CHURNED.encode())
    check(meter, bench)
    db.execute("ANALYZE")
    check(meter, bench)
    # Nor does the list of the newest, with a full queue and with an empty one.
    for change in ("SELECT", "UPDATE runner.job SET state = 'cancelled', finished_at = now() WHERE state = 'queued'"):
        db.execute(change.encode())
        db.execute("ANALYZE runner.job")
        listed = meter.cost(QUERIES["queue"].sql, {"limit": 20})
        assert listed.pages < 20 * 800, listed
        assert listed.walked == {}, listed


#: What the finished jobs have found.
RESULTS = """\
WITH written AS (
    INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, passed, system_info)
    SELECT submission_id, now(), now(), mode, secret, gpu_type, true, '{}'
    FROM runner.job WHERE state = 'done' AND mode = 'test'
    RETURNING id, submission_id
)
INSERT INTO runner.job_run (run_id, job_id)
SELECT w.id, j.id FROM written w JOIN runner.job j ON j.submission_id = w.submission_id;
"""


RESULT = b"SELECT * FROM runner.result WHERE submission_id = %(submission_id)s ORDER BY run_id"


def test_the_last_words_of_a_submission_do_not_depend_on_how_many_results_there_are(
    queue: Bench, db: Db, meter: Meter
) -> None:
    """A ranked completion planned when there was no result reads its own when there are thousands."""
    queue.submit(mode="leaderboard")
    public = queue.claim()
    queue.store.complete(public, ranked(public))
    secret = queue.claim()
    db.execute("ANALYZE")
    parameters = {"results": to_jsonb([_result(secret, ranked(secret))])}
    short = meter.cost(QUERIES["complete"].sql, parameters)
    load(db, MANY)
    db.execute(CHURNED.encode())
    db.execute(RESULTS.encode())
    # Nor do readers walk all results to find those of a submission.
    for query in (RESULT, QUERIES["runs"].sql):
        cost = meter.cost(query, {"submission_id": public.submission_id})
        assert cost.pages < 100, cost
        assert cost.walked == {}
        assert max(cost.entries.values()) < 100, cost
    status = meter.cost(QUERIES["status"].sql, {"submission_id": public.submission_id})
    assert status.pages < 200, status
    assert status.walked == {}, status
    # The load has ended it like all others.
    again = (
        b"UPDATE runner.job SET state = 'running', verdict = NULL, finished_at = NULL, lease_owner = 'h',"
        b" lease_expires_at = now() + interval '1 hour' WHERE id = %(id)s"
    )
    db.execute(again, {"id": secret.id})
    deep = meter.cost(QUERIES["complete"].sql, parameters)
    assert deep.pages < short.pages + 60, (short, deep)
    assert deep.walked == {}
    assert max(deep.entries.values()) < 100, deep


#: A user's share of a board's scores, on each of ten boards; each score is a record.
SCORES = """\
INSERT INTO leaderboard.user_info (id, user_name) SELECT 'user ' || u, 'U' FROM generate_series(0, 9999) u
ON CONFLICT DO NOTHING;
INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, description)
SELECT 'board ' || n, now(), '{}', 0, '' FROM generate_series(1, 9) n;
INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done)
SELECT l.id, 'x.py', 'user ' || n % 100, c.id, now(), true
FROM generate_series(1, 2000) n, leaderboard.leaderboard l, leaderboard.code_files c;
WITH job AS (
    INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, state, verdict, finished_at)
    SELECT s.id, s.user_id, 'CPU', 'leaderboard', x, 'done', 'accepted', now()
    FROM leaderboard.submission s, unnest(ARRAY[false, true]) x WHERE s.done RETURNING id, submission_id, secret
), run AS (
    INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, system_info)
    SELECT j.submission_id, now(), now(), m, j.secret, 'CPU',
           CASE WHEN m = 'leaderboard' AND NOT j.secret THEN 1 - j.id / 1e6 END, true, '{}'
    FROM job j, unnest(ARRAY['test', 'benchmark', 'leaderboard']) m RETURNING id, submission_id, secret
)
INSERT INTO runner.job_run (run_id, job_id)
SELECT r.id, j.id FROM run r JOIN job j ON j.submission_id = r.submission_id AND j.secret = r.secret;
UPDATE runner.score_mark SET run_id = 0, next_id = (SELECT max(id) FROM leaderboard.runs), noted_at = '-infinity';
SELECT runner.keep_scores(1000000), runner.keep_scores(1000000);
"""


def test_a_ranking_costs_what_its_users_cost(queue: Bench, db: Db, meter: Meter) -> None:
    """A board's ranking with a hundred users reads a few rows for each, of a hundred thousand results on ten boards."""
    queue.submit()
    ranking = {"leaderboard": "identity", "gpu_type": None}
    meter.cost(boards.QUERIES["ranking"].sql, ranking)
    db.execute(SCORES.encode())
    for analyzed in (False, True):
        if analyzed:
            db.execute("ANALYZE")
        cost = meter.cost(boards.QUERIES["ranking"].sql, ranking)
        assert cost.walked == {}, (analyzed, cost)
        assert cost.entries["score_place_idx"] < 1000, (analyzed, cost)
        assert sum(cost.entries.values()) < 3000, (analyzed, cost)
    assert len(queue.store.ranking("identity")) == 100


GUESTS = (boards.QUERIES, gateway.QUERIES, discord.QUERIES, webhooks.QUERIES, SHARED)
#: What a request may ask.
ASKED = {
    "board_id": 1, "category": "leaderboard", "event_id": 1, "final_id": 1, "gpu_type": "CPU", "gpu_types": ["CPU"],
    "id": 1, "ids": [500], "job_id": 500, "last_day": True, "leaderboard": "identity", "most_bytes": 10_000,
    "name": "identity", "names": ["identity"], "offset": 0, "submission_id": 500, "user_id": "user 5",
    "limit": 50, "user_name": "nobody", "verdict": "accepted", "with_code": True, "with_runs": True,
    **dict.fromkeys(("cause", "host", "since", "until", "verdicts")),
}  # fmt: skip
#: What operators alone ask, of all users or all runs of a day.
RARE = {"users", "count_waiting", "user_submission_ids", "stats_runs", "matching"}


def test_no_request_walks_a_table(queue: Bench, db: Db, meter: Meter) -> None:
    """What guests ask for a page or an event reads no table from end to end; of scores no more than it shows."""
    queue.submit()
    db.execute(SCORES.encode())
    db.execute("ANALYZE")
    asked = {
        name: query.sql
        for queries in GUESTS
        for name, query in queries.items()
        if query.sql.startswith(b"SELECT") and not re.search(rb"^SELECT \* FROM runner\.|runner\.submit", query.sql)
    }
    assert len(asked) > 50
    asked |= {
        "webhook_leaders": b"SELECT runner.webhook_leaders(1, 'CPU')",
        "board_records": b"SELECT * FROM runner.board_records(1, 'CPU', 50)",
        "board_scores": b"SELECT * FROM runner.board_scores(1, 'CPU', 50)",
    }
    costs = {name: meter.cost(query, ASKED) for name, query in asked.items()}
    assert {name for name, cost in costs.items() if cost.walked} == RARE
    for name in ("webhook_leaders", "board_records", "board_scores", "records"):
        entries = {index: number for index, number in costs[name].entries.items() if index.startswith("score_")}
        assert 0 < sum(entries.values()) < 200, (name, entries)


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
PAGE_OF_RESULTS = b"SELECT * FROM runner.batch_results('large', after => %(after)s::bigint, at_most => 100)"
KEYS = b"SELECT * FROM runner.batch_results(keys => %(keys)s::text[])"
PROGRESS = b"SELECT * FROM runner.batch_progress('large')"
SUBMIT_ITEMS = b"SELECT * FROM runner.submit_batch(items => %(items)s::jsonb, gpu_type => 'CPU', batch => 'large')"
WORK = {"host": "h", "gpu_types": ["CPU"], "free": [1], "lease_s": 60, "instance": None}


def check_batch(meter: Meter, bench: Bench, done: int) -> None:
    """Every statement reads a part that does not grow with the batch."""
    claim = meter.cost(QUERIES["claim"].sql, WORK)
    assert claim.pages < 400, claim
    assert max(claim.entries.values()) < 100, claim
    assert claim.walked == {}
    first = meter.cost(PAGE_OF_RESULTS, {"after": 0})
    last = meter.cost(PAGE_OF_RESULTS, {"after": max(0, done - 100)})
    for page in (first, last):
        assert page.pages < 100 * 12, page
        assert page.entries.get("item_result_batch_id_seq_key", 0) <= 110, page
        assert page.walked == {}
    items = json.dumps([make(10_000 + n, n // 8) | {"key": f"new {n}"} for n in range(100)])
    for query, parameters, pages in (
        (PROGRESS, {}, 60),
        (KEYS, {"keys": [f"large {n} 1" for n in range(100)]}, 100 * 20),
        # An item is some ten index entries of its own, and so is its text.
        (SUBMIT_ITEMS, {"items": items}, 100 * 120),
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
    check_batch(meter, bench, 0)
    db.execute(LOAD.encode())
    done = 100 + GROUPS // 3 * PER_GROUP
    check_batch(meter, bench, done)
    with Db.connect(bench.url, autocommit=True, row_factory=dict_row) as fresh:
        check_batch(Meter(fresh), bench, done)
    db.execute("ANALYZE")
    check_batch(meter, bench, done)
