"""The books of a storm notice whatever is lost, doubled or let in late: each test falsifies them in one place.

All tests share one database; what a test changes there is rolled back.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from runner.base.model import Mode, Verdict
from runner.extras.boards.again import Selection
from runner.extras.boards.store import BoardStore
from tests.chaos import ledger, producer
from tests.chaos.ledger import Books, Db
from tests.chaos.producer import Deed, Order
from tests.chaos.script import Script, found
from tests.support.boards import publish
from tests.support.jobs import of_submission

GPU_TYPES = ("H100", "MI300")
HOST = "a"
RUNNING = """
UPDATE runner.job SET state = 'running', verdict = NULL, finished_at = NULL, lease_owner = 'a', lease_expires_at = now()
WHERE id = 1
"""
DOUBLED = """
WITH copy AS (
    INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation,
                                  meta, result, system_info)
    SELECT submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result,
           system_info
    FROM leaderboard.runs LIMIT 1 RETURNING id
)
INSERT INTO runner.job_run (run_id, job_id) SELECT id, 1 FROM copy
"""
CONFUSED = """
UPDATE leaderboard.runs SET result = jsonb_set(result, '{nonce}', '"other"')
WHERE id = (SELECT min(id) FROM leaderboard.runs)
"""


def order(number: int, mode: Mode, verdict: Verdict = Verdict.ACCEPTED, *, failing: int = 0) -> Order:
    """A submission whose jobs all find the same."""
    return Order(
        key=f"order-{number}",
        at_s=0.0,
        user_id=f"user-{number}",
        mode=mode,
        gpu_types=GPU_TYPES,
        priority=0,
        script=Script(
            work_ms=0,
            failing=failing,
            verdicts={f"{gpu_type}/{kind}": verdict for gpu_type in GPU_TYPES for kind in ("public", "secret")},
        ),
    )


class World:
    """A database in which a few submissions were evaluated as they asked for."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = BoardStore(url, application_name="books")
        self.db: Db = ledger.connect(url)
        self.orders = [
            order(1, Mode.LEADERBOARD),
            order(2, Mode.PROFILE),
            order(3, Mode.TEST, Verdict.WRONG_ANSWER, failing=1),
            order(4, Mode.LEADERBOARD, Verdict.REJECTED),
            order(5, Mode.LEADERBOARD),
            order(6, Mode.LEADERBOARD),
        ]
        self.journal: list[dict[str, Any]] = []
        self.losses = 0

    def evaluate(self) -> None:
        """Submit everything and work it off."""
        publish(self.store, producer.BOARD, GPU_TYPES)
        for each in self.orders:
            each.submission_id = self.store.submit(
                leaderboard=producer.BOARD,
                user_id=each.user_id,
                file_name="script.py",
                code=each.script.to_code(),
                mode=each.mode.value,
                gpu_types=each.gpu_types,
                user_name=None,
                idempotency_key=each.key,
            )
        self._work_off()
        for each, deed in zip(self.orders[-2:], (Deed.RERUN, Deed.INVALIDATE), strict=True):
            each.done.add(deed)
        self.store.rerun(Selection(submission_id=self.orders[-2].submission_id))
        self.store.invalidate(Selection(submission_id=self.orders[-1].submission_id), reason="bad device")
        self._work_off()

    def _work_off(self) -> None:
        while self._claim():
            pass

    def _claim(self) -> bool:
        claims = self.store.claim(host=HOST, slots=dict.fromkeys(GPU_TYPES, 1), lease_s=60.0)
        for job in claims.jobs:
            script = Script.from_code(of_submission(job).code)
            nonce = uuid.uuid4().hex
            about = {
                "job": job.id,
                "attempt": job.attempt,
                "claimed_at": job.started_at.timestamp(),
                "nonce": nonce,
                "slot": "gpu0",
                "at": time.time(),
            }
            self.journal.append({"what": "begun", **about})
            if job.failures < script.failing:
                self.store.fail(job, error="as the script says", report=None, slot="gpu0")
                self.db.execute("UPDATE runner.job SET not_before = NULL, avoid_until = NULL")
                continue
            self.store.complete(job, found(job, script, nonce=nonce, score_s=1e-6 * job.id))
            self.journal.append({"what": "found", **about})
        return bool(claims.jobs)

    def books(self) -> Books:
        """The books as they stand."""
        return ledger.read(self.db, self.orders, {HOST: self.journal}, {HOST: self.losses})

    def close(self) -> None:
        """Close the connections."""
        self.store.close()
        self.db.close()


@pytest.fixture(scope="module")
def evaluated(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[World]:
    """Six submissions, evaluated as they should be."""
    made = World(create_database(migrated_template))
    try:
        made.evaluate()
        yield made
    finally:
        made.close()


@pytest.fixture
def world(evaluated: World) -> Iterator[World]:
    """The same, to be falsified."""
    journal = list(evaluated.journal)
    with evaluated.db.transaction(force_rollback=True):
        yield evaluated
    evaluated.journal, evaluated.losses = journal, 0


def test_right_books_are_right(world: World) -> None:
    """Nothing is complained about where all went well."""
    assert ledger.settled(world.books()) == []


@pytest.mark.parametrize(
    ("falsification", "complaint"),
    [
        ("DELETE FROM runner.job WHERE id = 1", "expected the jobs"),
        ("DELETE FROM runner.idempotency WHERE key = 'order-2'", "was not ordered"),
        (RUNNING, "leased by a"),
        ("UPDATE runner.job SET state = 'queued', verdict = NULL, finished_at = NULL WHERE id = 1", "never ended"),
        ("UPDATE runner.job SET state = 'cancelled', verdict = NULL WHERE id = 1", "without a request by its user"),
        ("UPDATE runner.job SET verdict = 'wrong_answer' WHERE id = 1", "verdict wrong_answer, expected accepted"),
        ("UPDATE runner.job SET verdict = 'internal_error' WHERE id = 1", "internal_error after 0 failures"),
        ("UPDATE runner.job SET verdict = 'wrong_answer' WHERE id = 1", "though its public job ended as wrong_answer"),
        ("UPDATE runner.job SET attempt = 0 WHERE id = 2", "without having run"),
        ("UPDATE runner.job SET failures = 2 WHERE id = 1", "2 failures were counted, 0 happened"),
        ("UPDATE runner.job SET attempt = attempt + 1 WHERE id = 1", "come from"),
        ("DELETE FROM leaderboard.runs WHERE id = (SELECT min(id) FROM leaderboard.runs)", "expected the rows"),
        (DOUBLED, "expected the rows"),
        (CONFUSED, "its rows and its report come from"),
        ("UPDATE leaderboard.runs SET score = NULL", "expected the rows"),
        ("UPDATE leaderboard.runs SET secret = NOT secret WHERE id = 1", "says submission 1, H100, secret True"),
        ("DELETE FROM runner.job_run WHERE run_id = 1", "belongs to no job"),
        ("UPDATE leaderboard.submission SET done = false WHERE id = 1", "(done, job status, status, no error)"),
        ("DELETE FROM runner.superseded_run WHERE run_id = (SELECT min(run_id) FROM runner.superseded_run)", "rows"),
        ("DELETE FROM runner.event WHERE kind = 'failed'", "0 failures and 0 reclaims are told"),
        ("UPDATE runner.job SET causes = '[]'", "0 causes for 1 failures"),
        ("UPDATE runner.job SET attempt = attempt + 1 WHERE id = 2", "claimed 2 times"),
        (
            "UPDATE runner.job SET retired_as = NULL, retired_at = NULL WHERE retired_as = 'replaced'",
            "with 0 rows that count and 3 that do not",
        ),
        ("UPDATE runner.job SET retired_as = NULL, retired_at = NULL WHERE retired_as = 'replaced'", "count, expected"),
        ("UPDATE runner.job SET retired_as = 'dropped', retired_at = now() WHERE id = 1", "the jobs [] count"),
        ("UPDATE runner.job SET replaces = NULL", "expected the jobs"),
        ('UPDATE runner.artifact SET data = \'{"nonce": "other"}\'', "artifacts of the executions"),
        ("UPDATE leaderboard.submission SET status = 'hacked' WHERE id = 1", "the ranking differs"),
        ("UPDATE runner.job SET started_at = started_at + interval '1 second' WHERE id = 1", "of another claim"),
    ],
)
def test_a_false_entry_is_noticed(world: World, falsification: str, complaint: str) -> None:
    """Each kind of loss, doubling and confusion is named."""
    changed = world.db.execute(falsification.encode())
    assert changed.rowcount > 0
    complaints = ledger.settled(world.books())
    assert any(complaint in line for line in complaints), complaints


def test_a_rerun_that_its_author_cancelled_is_noticed(world: World) -> None:
    """An author cancels what an author ordered."""
    world.orders[-2].done.add(Deed.CANCEL)
    assert ledger.settled(world.books()) == []
    world.db.execute("UPDATE runner.job SET state = 'cancelled', verdict = NULL WHERE replaces IS NOT NULL")
    complaints = ledger.settled(world.books())
    world.orders[-2].done.remove(Deed.CANCEL)
    assert any("without a request by its user" in line for line in complaints)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([{}], "attempt 1 was run 2 times"),
        ([{"what": "checked"}], None),
        ([{"what": "checked"}, {"what": "refused"}], "attempt 1 was run, and refused early"),
        ([{"what": "checked"}, {"what": "checked"}], "was checked early 2 times"),
        ([{"what": "doubled"}], "two runs at once on slot gpu0"),
        # Where the database lost a claim its number is the same, its time is not.
        ([{"claimed_at": 0.0, "nonce": "before"}], None),
    ],
)
def test_more_than_one_execution_is_noticed(world: World, lines: list[dict[str, Any]], complaint: str | None) -> None:
    """An attempt runs once, even if only one execution was committed; it is checked once, and not run if refused."""
    world.journal += [{**world.journal[0], **line} for line in lines]
    complaints = ledger.settled(world.books())
    assert len(complaints) == (complaint is not None)
    assert (complaint or "") in "".join(complaints)


def test_a_result_that_is_nowhere_is_noticed_unless_its_daemon_was_killed(world: World) -> None:
    """What an evaluation found is committed, kept as evidence, or died with its daemon."""
    found_at = time.time()
    about = {"job": 1, "attempt": 0, "claimed_at": 0.0, "nonce": "lost", "slot": "gpu0", "at": found_at}
    world.journal.append({"what": "found", **about})
    (complaint,) = ledger.settled(world.books())
    assert "1 results were found and are nowhere, at most 0 could be lost" in complaint
    world.losses = 1
    assert ledger.settled(world.books()) == []
    world.losses = 0
    assert ledger.settled(replace(world.books(), stale=frozenset({"lost"}))) == []
    assert ledger.settled(replace(world.books(), lost_s=(found_at - 1, found_at + 1))) == []
    assert len(ledger.settled(replace(world.books(), lost_s=(found_at + 1, found_at + 2)))) == 1


def test_a_job_that_changes_is_no_fault_after_the_database_went_back(world: World) -> None:
    """The watch forgets what was over."""
    watch = ledger.Watch(world.url)
    watch.look(world.db)
    with watch.looking_away():
        world.db.execute("UPDATE runner.job SET attempt = attempt + 1 WHERE id = 1")
    watch.look(world.db)
    assert watch.violations == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("UPDATE runner.job SET attempt = attempt + 1 WHERE id = 1", "was over and changed"),
        ("DELETE FROM runner.job WHERE id = 1", "was over and changed"),
        ("UPDATE leaderboard.submission SET done = false WHERE id = 1", "done is False, but 0 jobs are open"),
        (
            "UPDATE runner.job SET state = 'queued', verdict = NULL, finished_at = NULL WHERE id = 1",
            "done is True, but 1 jobs are open",
        ),
        (
            "UPDATE runner.job SET state = 'queued', verdict = NULL, finished_at = NULL WHERE id = 1",
            "has rows too soon",
        ),
        ("UPDATE runner.job SET failures = 4 WHERE id = 1", "failed too often"),
    ],
)
def test_the_watch_notices_what_must_never_be(world: World, change: str, complaint: str) -> None:
    """Between two looks, or at one."""
    watch = ledger.Watch(world.url)
    watch.look(world.db)
    watch.look(world.db)
    assert watch.violations == []
    world.db.execute(change.encode())
    watch.look(world.db)
    assert any(complaint in line for line in watch.violations), watch.violations
