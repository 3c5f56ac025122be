"""Two statements that meet: one has been executed and is not committed while the other runs.

Neither sees what the other writes, unless it waits for a lock. In the end all jobs are over all the same, and every
submission, batch, sweep and final is done. How many: KERNEL_RUNNER_TEST_EXAMPLES.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import psycopg
import pytest

from runner.base.model import (
    Claimed,
    Demand,
    FinalJob,
    GroupJob,
    Job,
    JobResult,
    TimingAssurance,
    ValidationJob,
    Verdict,
)
from runner.extras.boards import queries as boards
from runner.store.queries import QUERIES
from runner.store.results import _result
from tests.integration.store.conftest import CODE, TASK, Bench, Db, enqueue, one, ranked, result, run_record
from tests.integration.store.test_batches import found as found_of_group
from tests.integration.store.test_batches import item
from tests.integration.store.test_batches import submit as submit_batch
from tests.integration.store.test_demands import found as timed
from tests.integration.store.test_finals import scored
from tests.integration.store.test_state_machine import EXAMPLES
from tests.integration.store.test_validations import VALIDATION, WAITS, said
from tests.support import sweeps
from tests.support.jobs import of_submission
from tests.support.waiting import PATIENCE_S, wait_until

EMPTY: Final = """
TRUNCATE leaderboard.leaderboard, leaderboard.submission, leaderboard.user_info, leaderboard.code_files, runner.clock,
         runner.share, runner.host, runner.event, runner.lease, runner.batch_owner, runner.source, runner.pause CASCADE;
INSERT INTO runner.gpu_type (name, vendor) VALUES ('CPU', 'none') ON CONFLICT DO NOTHING;
"""
#: The queue is looked at as if hours had passed.
LATER: Final = """
UPDATE runner.sweep SET swept_at = '-infinity', looked_at = '-infinity';
UPDATE runner.job SET not_before = now() WHERE not_before IS NOT NULL;
UPDATE runner.job SET avoid_until = now() WHERE avoid_until IS NOT NULL;
"""
HOSTS: Final = ("host-a", "host-b")
#: What must not be there in the end.
LEFT: Final[Mapping[str, str]] = {
    "an open job": "SELECT id, state, ready, mode FROM runner.job WHERE state IN ('queued', 'running')",
    "a submission that is not done": """
        SELECT s.id, t.status FROM leaderboard.submission s
        LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
        WHERE NOT s.done OR t.status IN ('pending', 'running') OR t.status IS NULL""",
    "an item without a result": """
        SELECT i.id FROM runner.item i LEFT JOIN runner.item_result r ON r.item_id = i.id WHERE r.item_id IS NULL""",
    "an open sweep": "SELECT id FROM leaderboard.validation_sweep WHERE status = 'running'",
    "an open final": "SELECT id FROM runner.final_sweep WHERE status = 'running'",
    "a job with too many rows or too few": """
        SELECT j.id, count(x.run_id) FROM runner.job j LEFT JOIN runner.job_run x ON x.job_id = j.id
        WHERE j.mode = 'leaderboard' AND j.retired_at IS NULL GROUP BY j.id
        HAVING count(x.run_id) <> CASE WHEN j.verdict IN ('accepted', 'wrong_answer') AND j.attempt > 0 THEN 2
                                       ELSE 0 END""",
    "a score against the demand": """
        SELECT r.id, r.score, r.system_info FROM leaderboard.runs r
        JOIN leaderboard.submission s ON s.id = r.submission_id
        LEFT JOIN runner.board b ON b.leaderboard_id = s.leaderboard_id
        WHERE NOT r.secret AND r.passed AND r.mode = 'leaderboard' AND (r.score IS NOT NULL) <>
            coalesce(r.system_info #>> '{runner,assurance,timing}' = ANY (b.ranked), true)""",
    "a score that is not copied": """
        SELECT r.id FROM leaderboard.runs r LEFT JOIN runner.score k ON k.run_id = r.id
        WHERE NOT r.secret AND r.passed AND r.score IS NOT NULL AND k.run_id IS NULL""",
}
#: A statement and its parameters.
Act = tuple[bytes, Mapping[str, Any] | Sequence[Any]]


class Scene:
    """A queue that has something of everything."""

    public: Job

    def __init__(self, bench: Bench, db: Db) -> None:
        self.bench = bench
        self.db = db
        db.execute(EMPTY.encode())
        bench.board(task={**TASK, "validation": VALIDATION})
        for host in HOSTS:
            bench.register(host)
        self.ranked = [bench.submit(mode="leaderboard", user_id=user) for user in ("a", "b", "c")]
        self.work_off()
        self.sweep_id = sweeps.validate(bench.store, "identity", "CPU")["sweep_id"]
        sweeps.final(bench.store, "identity", "CPU", top=3, rounds=5, open_board=True)
        claimed = bench.store.claim(host="host-a", slots={"CPU": 9}, lease_s=600).jobs
        (self.final,) = (job for job in claimed if isinstance(job, FinalJob))
        self.validation, other = (job for job in claimed if isinstance(job, ValidationJob))
        bench.store.release(other, reason="x")
        submit_batch(db, [item(number, number) for number in range(3)], priority=-5)
        self.group = bench.claim()
        starts = bench.submit(user_id="starts")
        db.execute("UPDATE runner.job SET ready = false, not_before = now() WHERE submission_id = %s", (starts,))
        self.public_id = bench.submit(mode="leaderboard", user_id="public")
        self.public = bench.claim_of(self.public_id)
        enqueue(bench.store, self.public_id, mode="benchmark")
        self.beside = bench.claim_of(self.public_id)
        secret_id = bench.submit(mode="leaderboard", user_id="secret")
        first = bench.claim_of(secret_id)
        bench.store.complete(first, outcome(first))
        self.secret = bench.claim_of(secret_id)
        self.lost = bench.claim_of(bench.submit(user_id="lost"))
        self.waiting_id = bench.submit(user_id="waiting")
        ends = bench.submit(user_id="ends")
        held = [self.final, self.validation, self.group, self.public, self.beside, self.secret]
        bench.store.heartbeat(host="host-a", lease_s=600, held=[job.key for job in held])
        db.execute("UPDATE runner.job SET lease_expires_at = now() WHERE id = %s", (self.lost.id,))
        db.execute("UPDATE runner.job SET expires_at = now() WHERE submission_id = %s", (ends,))
        db.execute(LATER.encode())

    def work_off(self) -> None:
        """The hosts evaluate whatever they get, until there is nothing more."""
        while True:
            self.db.execute(LATER.encode())
            self.bench.store.reclaim()
            jobs = [
                job for host in HOSTS for job in self.bench.store.claim(host=host, slots={"CPU": 9}, lease_s=600).jobs
            ]
            if not jobs:
                return
            for job in jobs:
                self.bench.store.complete(job, outcome(job))

    def end(self) -> None:
        """The daemons are started again, nothing is paused, and all goes on."""
        for host in HOSTS:
            self.bench.store.undrain(host)
            self.bench.store.recover(host=host, keep=())
        self.db.execute("DELETE FROM runner.pause")
        if self.db.execute("SELECT FROM runner.board WHERE paused IS NOT NULL").fetchall():
            self.bench.store.resume_board("identity")
        self.work_off()


def outcome(job: Job) -> JobResult:
    """What a host finds, of any job; a public time is measured."""
    match job:
        case GroupJob():
            return found_of_group(job)
        case FinalJob():
            return scored(1e-6 * (1 + job.id % 3))
        case ValidationJob():
            return said()
        case _ if job.mode == "leaderboard":
            return timed(job, "measured")
        case _:
            return result(Verdict.ACCEPTED, run_record(job.mode))


def calls(sql: str, *values: object) -> Act:
    """Any statement."""
    return sql.encode(), values


def completes(job: Job, found: JobResult | None = None, *, waits: bool = True) -> Act:
    """The commit of a result, which waits for locks, or leaves alone what is locked."""
    results = [{"waits": waits, **_result(job, found or outcome(job))}]
    return QUERIES["complete"].sql, {"results": json.dumps(results)}


def ends(name: str, job: Claimed) -> Act:
    """The end of an attempt without a result."""
    about = {"id": job.id, "attempt": job.attempt, "submission_id": job.submission_id}
    return QUERIES[name].sql, {**about, "reason": "x", "slot": "0", "error": "x", "report": None}


def selects(name: str, **values: object) -> Act:
    """An operator's action on what matches."""
    every = ("submission_id", "leaderboard", "host", "since", "until", "gpu_types", "verdicts", "cause")
    return boards.QUERIES[name].sql, {**dict.fromkeys(every), "reason": "x", "priority": -1, **values}


ACTS: Final[Mapping[str, Callable[[Scene], Act]]] = {
    "submit": lambda _: calls("SELECT runner.submit('identity', 'new', 'a.py', %s, 'leaderboard')", CODE),
    "submit again": lambda _: calls("SELECT runner.submit('identity', 'waiting', 'a.py', %s, 'test')", CODE),
    "submit_batch": lambda _: calls(
        "SELECT runner.submit_batch(%s, 'CPU', 'b')", json.dumps([item(number) for number in range(2, 6)])
    ),
    "cancel_batch": lambda _: calls("SELECT runner.cancel_batch('b')"),
    "enqueue": lambda s: calls("SELECT runner.enqueue(%s, 'benchmark', NULL)", s.waiting_id),
    "enqueue beside": lambda s: calls("SELECT runner.enqueue(%s, 'private', NULL)", s.public_id),
    "cancel what waits": lambda s: calls("SELECT runner.cancel(%s)", s.waiting_id),
    "cancel what runs": lambda s: calls("SELECT runner.cancel(%s)", s.public_id),
    "claim": lambda _: calls("SELECT id FROM runner.claim('host-b', '{CPU}', '{2}', 600, 'host-b')"),
    "claim all": lambda _: calls("SELECT id FROM runner.claim('host-a', '{CPU}', '{9}', 600, 'host-a')"),
    "heartbeat": lambda s: calls(
        "SELECT runner.heartbeat('host-a', 600, %s, %s, 'host-a')",
        [s.lost.id, s.public.id, s.group.id],
        [1, s.public.attempt, s.group.attempt],
    ),
    "reclaim": lambda _: calls("SELECT runner.reclaim()"),
    "recover": lambda _: calls("SELECT runner.recover('host-a', '{}', '{}', false, 'host-a')"),
    "restart": lambda _: calls("SELECT runner.recover('host-a', '{}', '{}', true, 'host-a')"),
    "complete public": lambda s: completes(s.public),
    "complete wrong": lambda s: completes(s.public, ranked(s.public, passed=False)),
    "complete beside": lambda s: completes(s.beside),
    "complete beside if free": lambda s: completes(s.beside, waits=False),
    "complete secret": lambda s: completes(s.secret),
    "complete group": lambda s: completes(s.group),
    "complete nothing of a group": lambda s: completes(s.group, found_of_group(s.group, "internal_error")),
    "complete validation": lambda s: completes(s.validation),
    "complete final": lambda s: completes(s.final),
    "complete lost": lambda s: completes(s.lost),
    "fail": lambda s: ends("fail", s.public),
    "fail validation": lambda s: ends("fail", s.validation),
    "fail final": lambda s: ends("fail", s.final),
    "release": lambda s: ends("release", s.public),
    "release secret": lambda s: ends("release", s.secret),
    "release group": lambda s: ends("release", s.group),
    "release validation": lambda s: ends("release", s.validation),
    "release final": lambda s: ends("release", s.final),
    "stopped": lambda s: ends("stopped", s.public),
    "stopped beside": lambda s: ends("stopped", s.beside),
    "stopped final": lambda s: ends("stopped", s.final),
    "rerun": lambda _: selects("rerun", leaderboard="identity"),
    "invalidate": lambda s: selects("invalidate", submission_id=s.ranked[1]),
    "pause_board": lambda _: calls("SELECT runner.pause_board('identity', 'x')"),
    "resume_board": lambda _: calls("SELECT runner.resume_board('identity')"),
    "demand more": lambda _: calls("SELECT runner.set_demand('identity', 'audited')"),
    "demand less": lambda _: calls("SELECT runner.set_demand('identity', 'claimed')"),
    "validate": lambda _: calls("SELECT runner.validate('identity', 'CPU', true)"),
    "cancel_validations": lambda s: calls("SELECT runner.cancel_validations(%s)", s.sweep_id),
    "cancel_final": lambda _: calls("SELECT runner.cancel_final('identity')"),
    "delete ranked": lambda s: calls("SELECT runner.delete_submission(%s)", s.final.validates),
    "delete what runs": lambda s: calls("SELECT runner.delete_submission(%s)", s.public_id),
    "delete what waits": lambda s: calls("SELECT runner.delete_submission(%s)", s.waiting_id),
    "reap": lambda _: calls("SELECT runner.reap('1 day', 100)"),
    "drain": lambda _: calls("SELECT runner.drain('host-a')"),
    "pause": lambda _: calls("SELECT runner.pause('CPU', 'x')"),
    "take_check": lambda _: calls("SELECT id FROM runner.take_check('host-b', '{CPU}', 'host-b')"),
    "derive_webhooks": lambda _: calls("SELECT runner.derive_webhooks()"),
}


def meet(scene: Scene, first: str, second: str) -> list[str]:
    """What went wrong when the second ran before the first was committed, and all went on."""
    wrong: list[str] = []

    def execute(connection: psycopg.Connection[Any], act: Act) -> None:
        try:
            connection.execute(*act)
        except psycopg.Error as error:
            connection.rollback()
            # What the first one did may be why a function refuses.
            if not (error.sqlstate or "").startswith("KR"):
                wrong.append(repr(error))

    acts = [ACTS[name](scene) for name in (first, second)]
    with (
        psycopg.connect(scene.bench.url) as one_connection,
        psycopg.connect(scene.bench.url, autocommit=True) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        execute(one_connection, acts[0])
        running = thread.submit(execute, other, acts[1])
        wait_until(lambda: running.done() or one(scene.db, WAITS.decode())["count"], "its end, or its wait for a lock")
        one_connection.commit()
        running.result(timeout=PATIENCE_S)
    scene.end()
    for what, query in LEFT.items():
        if rows := scene.db.execute(query.encode()).fetchall():
            wrong.append(f"{what}: {rows}")
    return wrong


def test_what_saw_a_pause_that_ends_meanwhile_goes_on(bench: Bench, db: Db) -> None:
    """A statement that finds the pause holds its jobs back; the end of the pause does not see those jobs yet."""
    for first in random.sample([*ACTS], min(EXAMPLES // 2, len(ACTS))):
        scene = Scene(bench, db)
        bench.store.pause_board("identity", reason="x")
        assert meet(scene, first, "resume_board") == [], first


@pytest.mark.parametrize(("before", "change"), [("claimed", "demand more"), ("audited", "demand less")])
@pytest.mark.parametrize("order", [1, -1])
def test_a_result_meets_the_demand_of_its_commit(bench: Bench, db: Db, before: str, change: str, order: int) -> None:
    """Its daemon knows that of its claim."""
    scene = Scene(bench, db)
    db.execute("SELECT runner.set_demand('identity', %s)", (before,))
    scene.public = replace(of_submission(scene.public), demand=Demand(timing=TimingAssurance(before)))
    assert meet(scene, *("complete public", change)[::order]) == []


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("end", ["complete beside", "complete beside if free", "stopped beside"])
def test_of_jobs_that_end_together_one_ends_the_submission(bench: Bench, db: Db, end: str, order: int) -> None:
    """Without the submission's lock each would see the other still running."""
    assert meet(Scene(bench, db), *("complete wrong", end)[::order]) == []


def test_any_two(bench: Bench, db: Db) -> None:
    """By chance."""
    chance = random.Random()  # noqa: S311 - each run looks elsewhere
    for _ in range(EXAMPLES):
        first, second = (chance.choice([*ACTS]) for _ in range(2))
        scene = Scene(bench, db)
        if paused := chance.random() < 0.5:
            bench.store.pause_board("identity", reason="x")
        assert meet(scene, first, second) == [], (first, second, paused)
