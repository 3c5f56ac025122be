"""Everything at once on few submissions: no deadlock, nothing is lost, nothing is done twice."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

from runner.base.errors import StaleAttemptError
from runner.base.model import Job
from runner.extras.boards.store import BoardStore
from tests.integration.store.conftest import Bench, Db, one, ranked, together

TYPES = ("A100", "H100")
THREADS = 6
STEPS = 120


class Host:
    """A daemon, and a user beside it, that do one thing after the other by chance."""

    def __init__(self, store: BoardStore, bench: Bench, number: int) -> None:
        self.store = store
        self.frontend = Bench(store=store, url=bench.url)
        self.name = f"host-{number}"
        self.number = number
        self.choose = random.Random(number)  # noqa: S311 - reproducible on purpose
        self.held: list[Job] = []

    def work(self) -> int:
        """So many steps; what is in hand at the end is given back."""
        actions = [self.submit, self.claim, self.beat, self.commit, self.end, self.end, self.cancel, self.lose]
        for _ in range(STEPS):
            self.choose.choice(actions)()
        return len(self.store.recover(host=self.name, keep=()))

    def submit(self) -> None:
        """By one of a few users, on all GPU types."""
        user = f"u{self.choose.randrange(4)}"
        self.frontend.submit(mode="leaderboard", user_id=user, gpu_types=list(TYPES))

    def claim(self) -> None:
        """Several at once."""
        self.held.extend(self.store.claim(host=self.name, slots=dict.fromkeys(TYPES, 3), lease_s=60).jobs)

    def beat(self, jobs: Sequence[Job] | None = None, lease_s: float = 60) -> None:
        """Renew the leases of these jobs, by default of all."""
        held = [(job.id, job.attempt) for job in (self.held if jobs is None else jobs)]
        self.store.heartbeat(host=self.name, lease_s=lease_s, held=held)

    def commit(self) -> None:
        """All in hand, at once."""
        given = [(job, ranked(job)) for job in self.held]
        for (job, found), outcome in zip(given, self.store.complete_all(given), strict=True):
            if outcome is None:
                with contextlib.suppress(StaleAttemptError):
                    self.store.complete(job, found)
        self.held.clear()

    def end(self) -> None:
        """One of those in hand, somehow."""
        if not self.held:
            return
        job = self.held.pop(self.choose.randrange(len(self.held)))
        with contextlib.suppress(StaleAttemptError):
            match self.choose.randrange(4):
                case 0:
                    self.store.complete(job, ranked(job, passed=False))
                case 1:
                    self.store.fail(job, error="x", report=None, slot="s")
                case 2:
                    self.store.release(job, reason="x")
                case _:
                    self.store.cancelled(job)

    def cancel(self) -> None:
        """One of the first submissions, as its user may."""
        self.store.cancel(self.choose.randint(1, 30))

    def lose(self) -> None:
        """A lease runs out while its holder is at work; another host requeues it, and forgets one of its own."""
        self.beat(self.held[:1], lease_s=-1)
        self.store.reclaim()
        self.store.recover(host=self.name, keep=[(job.id, job.attempt) for job in self.held[1:]])


def test_all_at_once_is_no_deadlock(bench: Bench, db: Db) -> None:
    """Six hosts claim, renew, commit, fail, release, reclaim and recover, while users submit and cancel."""
    bench.board("identity", *TYPES)
    for _ in range(30):
        bench.submit(mode="leaderboard", gpu_types=list(TYPES))
    outcomes = together(THREADS, bench, lambda store, index: Host(store, bench, index).work())
    assert all(isinstance(outcome, int) for outcome in outcomes), outcomes
    assert one(db, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")["deadlocks"] == 0

    # A host passes over a job whose submission another one holds at that moment; now none does.
    for index in range(THREADS):
        bench.store.recover(host=f"host-{index}", keep=())
    db.execute("UPDATE runner.job SET not_before = NULL, avoid_until = NULL")
    last = Host(bench.store, bench, THREADS)
    while jobs := bench.store.claim(host=last.name, slots=dict.fromkeys(TYPES, 50), lease_s=60).jobs:
        last.held.extend(jobs)
        last.commit()
    left = one(db, "SELECT count(*) FILTER (WHERE NOT s.done) AS open, count(*) FROM leaderboard.submission s")
    assert left["open"] == 0, left
    wrong = db.execute(
        "SELECT j.id FROM runner.job j LEFT JOIN runner.job_run x ON x.job_id = j.id GROUP BY j.id"
        " HAVING j.state NOT IN ('done', 'cancelled') OR count(x.run_id) <> CASE"
        # Without a claim: a secret job that ended with its public one.
        " WHEN j.attempt = 0 THEN 0"
        " WHEN j.verdict = 'accepted' THEN 3 WHEN j.verdict = 'wrong_answer' THEN 2 ELSE 0 END"
    ).fetchall()
    assert wrong == []
    assert one(db, "SELECT count(*) FROM runner.job WHERE verdict = 'accepted'")["count"] > 0
