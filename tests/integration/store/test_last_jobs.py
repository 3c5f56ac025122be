"""The last jobs of a submission end at the same moment, on several hosts: exactly one of them writes the last word.

Without the submission's lock, two that end together would each see the other still running, and neither would.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue

from runner.base.model import Job, JobState, Mode, Verdict
from runner.store import Store
from tests.chaos.script import Ended, final_status
from tests.integration.store.conftest import Bench, Db, ranked, result
from tests.support.waiting import PATIENCE_S

GPU_TYPES = ("A100", "H100")
ROUNDS = 200
#: Both jobs on both types.
JOBS = 4

#: Every write of `done`, counted where no statement can get around it.
AUDIT = """
CREATE TABLE done_written (submission_id integer, done boolean);
CREATE FUNCTION note_done() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.done_written VALUES (NEW.id, NEW.done);
    RETURN NULL;
END $$;
CREATE TRIGGER note_done AFTER UPDATE OF done ON leaderboard.submission FOR EACH ROW EXECUTE FUNCTION note_done();
"""


@dataclass(kw_only=True)
class Ending:
    """How one job of a round ends, and what its submission was told by that."""

    job: Job
    act: Callable[[Store], bool]
    verdict: Verdict | None
    passed: tuple[bool, ...] = ()
    was_last: bool = False
    error: Exception | None = None


@dataclass
class EndingThreads:
    """One thread per job with a connection of its own; they act when all of them are ready."""

    bench: Bench
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(JOBS))
    inboxes: list[SimpleQueue[Ending | None]] = field(default_factory=lambda: [SimpleQueue() for _ in range(JOBS)])
    finished: SimpleQueue[Ending] = field(default_factory=SimpleQueue)

    def work(self, inbox: SimpleQueue[Ending | None]) -> None:
        """The body of a thread."""
        store = self.bench.other()
        try:
            store.ping()
            while (ending := inbox.get(timeout=PATIENCE_S)) is not None:
                self.barrier.wait(timeout=PATIENCE_S)
                try:
                    ending.was_last = ending.act(store)
                except Exception as error:  # noqa: BLE001 - looked at by the test
                    ending.error = error
                self.finished.put(ending)
        finally:
            store.close()

    def end(self, endings: Sequence[Ending]) -> None:
        """End these jobs together; returns when all have ended."""
        for inbox, ending in zip(self.inboxes, endings, strict=True):
            inbox.put(ending)
        for _ in endings:
            self.finished.get(timeout=PATIENCE_S)


@contextmanager
def ending_threads(bench: Bench) -> Iterator[EndingThreads]:
    """Threads that are gone afterwards."""
    made = EndingThreads(bench)
    threads = [threading.Thread(target=made.work, args=(inbox,), daemon=True) for inbox in made.inboxes]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.barrier.abort()
        for inbox in made.inboxes:
            inbox.put(None)
        for thread in threads:
            thread.join(PATIENCE_S)


def take_back(bench: Bench, store: Store) -> bool:
    """As a daemon does: reclaim as long as a claim says that a lease has run out; what is locked is passed over."""
    while True:
        bench.look_again()
        if not store.claim(host="watcher", slots={}, lease_s=1).overdue:
            return False
        if any(taken.submission_done for taken in store.reclaim()):
            return True


def ending(job: Job, how: int, db: Db, bench: Bench) -> Ending:
    """One of the ways in which a running job is over."""
    if how < 6:
        passed = how < 5
        found = ranked(job, passed=passed)
        return Ending(
            job=job,
            act=lambda store: store.complete(job, found).submission_done,
            verdict=found.verdict,
            passed=tuple(run.passed for run in found.runs),
        )
    if how == 6:
        db.execute("UPDATE runner.job SET failures = 2 WHERE id = %s", (job.id,))
        return Ending(
            job=job,
            act=lambda store: store.fail(job, error="the disk is full", report=None, slot="gpu0").submission_done,
            verdict=Verdict.INTERNAL_ERROR,
        )
    if how == 7:
        rejected = result(Verdict.REJECTED)
        return Ending(
            job=job, act=lambda store: store.complete(job, rejected).submission_done, verdict=Verdict.REJECTED
        )
    if how == 8:
        # Its daemons died too often.
        db.execute("UPDATE runner.job SET reclaims = 99, lease_expires_at = now() WHERE id = %s", (job.id,))
        return Ending(job=job, act=lambda store: take_back(bench, store), verdict=Verdict.INTERNAL_ERROR)
    db.execute("UPDATE runner.job SET cancel_requested = true WHERE id = %s", (job.id,))
    return Ending(job=job, act=lambda store: store.cancelled(job).submission_done, verdict=None)


def last_words(endings: Sequence[Ending]) -> str:
    """KernelBot's word for a submission whose jobs ended like that."""
    return final_status(
        [
            Ended(
                mode=Mode.LEADERBOARD,
                state=JobState.CANCELLED if each.verdict is None else JobState.DONE,
                verdict=each.verdict,
                passed=each.passed,
            )
            for each in endings
        ]
    )


def test_of_jobs_that_end_together_exactly_one_writes_the_last_word(bench: Bench, db: Db) -> None:
    """Two hundred times four jobs at once: done is written once, and the final status is that of all four."""
    bench.board("identity", *GPU_TYPES)
    db.execute(AUDIT)
    chance = random.Random(20)  # noqa: S311 - reproducible on purpose
    expected: dict[int, str] = {}
    with ending_threads(bench) as workers:
        for _ in range(ROUNDS):
            submission_id = bench.submit(mode="leaderboard", gpu_types=list(GPU_TYPES))
            bench.free_secret_jobs()
            jobs = [
                job
                for gpu_type in GPU_TYPES
                for job in bench.store.claim(host="host-a", slots={gpu_type: 2}, lease_s=600).jobs
            ]
            assert [job.submission_id for job in jobs] == [submission_id] * JOBS
            # Mostly accepted, or all others would hide behind the gravest.
            calm = chance.random() < 0.5
            endings = [ending(job, 0 if calm else chance.randrange(10), db, bench) for job in jobs]
            workers.end(endings)
            assert [each.error for each in endings] == [None] * JOBS
            assert sum(each.was_last for each in endings) == 1, endings
            expected[submission_id] = last_words(endings)
    found = db.execute(
        "SELECT s.id, s.done, t.status, (SELECT count(*) FROM done_written d WHERE d.submission_id = s.id) AS writes"
        " FROM leaderboard.submission s JOIN leaderboard.submission_job_status t ON t.submission_id = s.id"
    ).fetchall()
    assert {row["id"]: (row["done"], row["status"], row["writes"]) for row in found} == {
        submission_id: (True, word, 1) for submission_id, word in expected.items()
    }
    assert set(expected.values()) == {"succeeded", "failed", "hacked"}


def test_a_cancellation_and_the_last_results_agree_on_the_last_word(bench: Bench, db: Db) -> None:
    """One job waits and is cancelled at the moment when the others end: the last one writes done, once."""
    bench.board("identity", *GPU_TYPES)
    db.execute(AUDIT)
    with ending_threads(bench) as workers:
        for _ in range(ROUNDS // 4):
            submission_id = bench.submit(mode="leaderboard", gpu_types=list(GPU_TYPES))
            bench.free_secret_jobs()
            jobs = [
                *bench.store.claim(host="host-a", slots={"A100": 2}, lease_s=600).jobs,
                *bench.store.claim(host="host-a", slots={"H100": 1}, lease_s=600).jobs,
            ]
            assert len(jobs) == JOBS - 1
            cancellation = Ending(
                job=jobs[0],
                act=lambda store, submission_id=submission_id: store.cancel(submission_id) < 0,  # type: ignore[misc]  # mypy: default in lambda
                verdict=None,
            )
            endings = [*(ending(job, 0, db, bench) for job in jobs), cancellation]
            workers.end(endings)
            assert [each.error for each in endings] == [None] * JOBS
            # The cancellation says it in its event only.
            assert sum(each.was_last for each in endings) <= 1, endings
    wrong = db.execute(
        "SELECT s.id, s.done, t.status, count(d.*) AS writes FROM leaderboard.submission s"
        " JOIN leaderboard.submission_job_status t ON t.submission_id = s.id"
        " LEFT JOIN done_written d ON d.submission_id = s.id"
        " GROUP BY s.id, t.status HAVING NOT s.done OR t.status <> 'failed' OR count(d.*) <> 1"
    ).fetchall()
    assert not wrong
