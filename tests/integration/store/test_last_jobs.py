"""The last jobs of a submission end at the same moment, on several hosts: exactly one of them writes the last word.

Without the submission's lock, two that end together would each see the other still running, and neither would.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

from runner.base.model import Job, JobState, Mode, Verdict
from runner.extras.boards.store import BoardStore
from tests.chaos.script import Ended, final_status
from tests.integration.store.conftest import Bench, Db, ranked, result, rows
from tests.support.waiting import PATIENCE_S

GPU_TYPES = ("A100", "H100")
ROUNDS = 100
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
#: Ends something; whether that ended the submission.
Act = Callable[[BoardStore], bool]


def ended(verdict: Verdict | None, *passed: bool) -> Ended:
    """A ranked job that is over."""
    state = JobState.CANCELLED if verdict is None else JobState.DONE
    return Ended(mode=Mode.LEADERBOARD, state=state, verdict=verdict, passed=passed)


def take_back(bench: Bench, store: BoardStore) -> bool:
    """As a daemon does: reclaim as long as a claim says that a lease has run out; what is locked is passed over."""
    while True:
        bench.look_again()
        if not store.claim(host="watcher", slots={}, lease_s=1).overdue:
            return False
        if any(taken.submission_done for taken in store.reclaim()):
            return True


def way(job: Job, how: int, db: Db, bench: Bench) -> tuple[Act, Ended]:
    """One of the ways in which a running job is over: accepted half of the time."""
    match how:
        case 5:
            wrong = ranked(job, passed=False)
            return lambda store: store.complete(job, wrong).submission_done, ended(wrong.verdict, True, False)
        case 6:
            db.execute("UPDATE runner.job SET failures = 2 WHERE id = %s", (job.id,))
            full = "the disk is full"
            return (
                lambda store: store.fail(job, error=full, report=None, slot="gpu0").submission_done,
                ended(Verdict.INTERNAL_ERROR),
            )
        case 7:
            rejected = result(Verdict.REJECTED)
            return lambda store: store.complete(job, rejected).submission_done, ended(Verdict.REJECTED)
        case 8:
            # Its daemons died too often.
            db.execute("UPDATE runner.job SET reclaims = 99, lease_expires_at = now() WHERE id = %s", (job.id,))
            return lambda store: take_back(bench, store), ended(Verdict.INTERNAL_ERROR)
        case 9:
            db.execute("UPDATE runner.job SET cancel_requested = true WHERE id = %s", (job.id,))
            return lambda store: store.cancelled(job).submission_done, ended(None)
        case _:
            return lambda store: store.complete(job, ranked(job)).submission_done, ended(Verdict.ACCEPTED, True)


def cancellation(submission_id: int) -> tuple[Act, Ended]:
    """Of a job that waits; that the submission is over is in its event, not in its answer."""
    return lambda store: store.cancel(submission_id) < 0, ended(None)


def end_together(stores: Sequence[BoardStore], acts: Sequence[Act]) -> Sequence[bool]:
    """What each said, all called at the same moment."""
    barrier = threading.Barrier(len(acts))

    def run(store: BoardStore, act: Act) -> bool:
        barrier.wait(timeout=PATIENCE_S)
        return act(store)

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(run, stores, acts))


def test_of_jobs_that_end_together_exactly_one_writes_the_last_word(bench: Bench, db: Db) -> None:
    """Four at once, a fifth of the time one of them cancelled while it waits: done is written once, as all four say."""
    bench.board("identity", *GPU_TYPES)
    db.execute(AUDIT)
    chance = random.Random(20)  # noqa: S311 - reproducible on purpose
    expected: dict[int, str] = {}
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(bench.other())) for _ in range(JOBS)]
        for number in range(ROUNDS):
            submission_id = bench.submit(mode="leaderboard", gpu_types=list(GPU_TYPES))
            bench.free_secret_jobs()
            waits = number % 5 == 0
            slots = {"A100": 2, "H100": 1 if waits else 2}
            jobs = [
                job
                for name in slots
                for job in bench.store.claim(host="h", slots={name: slots[name]}, lease_s=600).jobs
            ]
            # Mostly accepted, or all others would hide behind the gravest.
            calm = waits or chance.random() < 0.5
            ways = [way(job, 0 if calm else chance.randrange(10), db, bench) for job in jobs]
            if waits:
                ways.append(cancellation(submission_id))
            last = end_together(stores, [act for act, _ in ways])
            assert sum(last) == 1 or (waits and not any(last)), last
            expected[submission_id] = final_status([end for _, end in ways])
    ends = rows(
        db,
        "SELECT s.id, s.done, t.status, (SELECT count(*) FROM done_written d WHERE d.submission_id = s.id) AS writes"
        " FROM leaderboard.submission s JOIN leaderboard.submission_job_status t ON t.submission_id = s.id ORDER BY 1",
    )
    assert ends == [(submission_id, True, word, 1) for submission_id, word in expected.items()]
    assert set(expected.values()) == {"succeeded", "failed", "hacked"}
