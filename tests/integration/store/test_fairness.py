"""Whose job is next: shares, turns, priorities. Everything here is the database's doing; the store only claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from runner.base.model import Job
from tests.integration.store.conftest import CODE, Bench, Db, ranked, rows, value
from tests.integration.store.meter import AGED


class Queue:
    """Submissions by the hundred, and a host that works them off; users are named by letters."""

    def __init__(self, bench: Bench, db: Db) -> None:
        self.bench = bench
        self.db = db

    def submit(self, user: str, times: int = 1, *, mode: str = "test", priority: int = 0) -> None:
        """So many submissions of a user."""
        self.db.execute(
            "SELECT runner.submit('identity', %s, 'x.py', %s, %s, priority => %s) FROM generate_series(1, %s)",
            (user, CODE, mode, priority, times),
        )

    def claim(self, slots: int = 1) -> Sequence[Job]:
        """What a host with so many free slots takes."""
        return self.bench.store.claim(host="host-a", slots={"CPU": slots}, lease_s=60).jobs

    def work(self) -> Sequence[Job]:
        """What a host with one slot takes; it is ranked, and accepted."""
        jobs = self.claim()
        for job in jobs:
            self.bench.store.complete(job, ranked(job))
        return jobs

    def serve(self, rounds: int, slots: int = 1) -> str:
        """Whose jobs are taken, in order; the last ones stay in hand."""
        return "".join(job.user_id for _ in range(rounds) for job in self.claim(slots))


@pytest.fixture
def queue(bench: Bench, db: Db) -> Queue:
    """An empty queue on one GPU type."""
    bench.board()
    return Queue(bench, db)


@pytest.mark.parametrize(("slots", "before"), [(1, 0), (4, 40)])
def test_a_newcomer_waits_for_one_run_per_slot_beside_a_user_with_a_thousand(
    queue: Queue, slots: int, before: int
) -> None:
    """Of one who has 1,000 queued, at most one job per slot is taken before the newcomer's."""
    queue.submit("h", 1000)
    queue.serve(before, slots)
    queue.submit("n")
    order = queue.serve(2, slots)
    assert order.index("n") <= slots, order


def test_a_newcomer_waits_for_one_submission_if_its_jobs_follow_each_other(queue: Queue) -> None:
    """The secret job of what has begun goes first, no more."""
    queue.submit("h", 50, mode="leaderboard")
    (job,) = queue.work()
    assert not job.secret
    queue.submit("n", mode="leaderboard")
    assert "".join(job.user_id for _ in range(4) for job in queue.work()) == "hnnh"


def test_public_and_secret_job_follow_each_other(queue: Queue) -> None:
    """Public first, then secret, before anybody else's turn comes."""
    for user in "abc":
        queue.submit(user, 3, mode="leaderboard")
    jobs = [job for _ in range(18) for job in queue.work()]
    pairs = list(zip(jobs[::2], jobs[1::2], strict=True))
    assert all(
        public.submission_id == secret.submission_id and (public.secret, secret.secret) == (False, True)
        for public, secret in pairs
    )
    assert "".join(public.user_id for public, _ in pairs) == "abcabcabc"


def test_heavy_users_alternate_in_any_order_of_arrival(queue: Queue) -> None:
    """Three who queued hundreds each, one after the other, are served in turns."""
    for user in "abc":
        queue.submit(user, 200)
    order = queue.serve(300)
    for start in range(0, 300, 3):
        assert sorted(order[start : start + 3]) == ["a", "b", "c"], start


def test_one_who_comes_back_gets_no_more_than_a_share(queue: Queue) -> None:
    """What a user left unused while away is not made up for: from then on both get the same."""
    queue.submit("a", 300)
    queue.submit("b", 5)
    queue.serve(150)
    queue.submit("b", 100)
    counted = Counter(queue.serve(100))
    assert abs(counted["a"] - counted["b"]) <= 2, counted


def test_one_who_stays_has_no_advantage_over_one_who_submits_singly(queue: Queue) -> None:
    """A queue of hundreds against one submission at a time, each after the last was taken: both get the same."""
    queue.submit("a", 200)
    order = ""
    for _ in range(60):
        queue.submit("b")
        while not (taken := queue.serve(1)).startswith("b"):
            order += taken
        order += taken
    counted = Counter(order)
    assert counted["a"] <= counted["b"] <= 2 * counted["a"] + 2, counted


def test_a_stream_of_newcomers_does_not_starve_those_who_were_there(queue: Queue) -> None:
    """A new user before every claim: one with a queue gets a run whenever those who waited have had theirs."""
    queue.submit("h", 50)
    queue.serve(1)
    order = ""
    for number in range(100):
        queue.submit(chr(ord("\u4e00") + number))
        order += queue.serve(1)
    served = [place for place, user in enumerate(order) if user == "h"]
    assert len(served) >= 12, order
    # More wait in each round, because the queue is fed as fast as it is served, and h has a run of each.
    assert [later - earlier for earlier, later in pairwise(served)] == list(range(3, len(served) + 2)), order


def test_a_higher_priority_is_served_first_and_shares_are_kept_apart(queue: Queue) -> None:
    """Priorities are strict; within each, users take turns, and what one takes in one does not count in the other."""
    queue.submit("a", 3)
    queue.submit("b", 2)
    queue.submit("a", 3, priority=5)
    queue.submit("b", 2, priority=5)
    queue.submit("c", priority=-5)
    assert queue.serve(11) == "ababa" + "ababa" + "c"


def test_gpu_types_have_their_own_turns(bench: Bench, db: Db) -> None:
    """Who has waited long on one type is a newcomer on the other."""
    bench.board("identity", "A100", "H100")
    for _ in range(20):
        bench.submit(gpu_types=["A100"], user_id="a")
    for _ in range(10):
        bench.claim("A100")
    bench.submit(gpu_types=["H100"], user_id="b")
    bench.submit(gpu_types=["H100"], user_id="a")
    assert rows(db, "SELECT turn FROM runner.job WHERE gpu_type = 'H100'") == [(0,), (0,)]


def turns(db: Db, user: str) -> list[int]:
    """The turns of a user's jobs, in the order they were made."""
    return [turn for (turn,) in rows(db, "SELECT turn FROM runner.job WHERE user_id = %s ORDER BY id", user)]


def test_turns_are_taken_in_sequence(queue: Queue, db: Db) -> None:
    """One of each round after the user's last job, or after the class's; a newcomer's first is ahead of its round."""
    queue.submit("a", 4)
    assert turns(db, "a") == [0, 2, 4, 6]

    def take(user: str, number: int = 1) -> int:
        return int(value(db, "SELECT runner.take_turns(%s, 'CPU', 0, %s)", user, number))

    assert take("a", 3) == 8
    db.execute("UPDATE runner.job SET turn = 12 WHERE turn = 6")
    assert take("a") == 14, "after the last of several"
    db.execute("UPDATE runner.job SET turn = 6 WHERE turn = 12")
    db.execute("INSERT INTO runner.clock (gpu_type, priority, turn) VALUES ('CPU', 0, 100)")
    queue.submit("a", 2)
    assert turns(db, "a")[4:] == [101, 104]
    assert take("a") == 106
    db.execute("DELETE FROM runner.share")
    assert take("a") == 101
    db.execute("UPDATE runner.clock SET turn = 101")
    assert [take("b"), take("b")] == [103, 104], "no newcomer any more"
    assert take("c", 2) == 104


@pytest.mark.parametrize("latest_first", [False, True])
def test_what_was_cancelled_costs_no_turns(queue: Queue, db: Db, *, latest_first: bool) -> None:
    """Thirty submitted and cancelled, one after the other, in whatever order: the next is as if there had been none."""
    queue.submit("h", 40)
    queue.serve(1)
    queue.submit("n", 30)
    order = sorted(rows(db, "SELECT submission_id FROM runner.job WHERE user_id = 'n'"), reverse=latest_first)
    for (submission_id,) in order:
        queue.bench.store.cancel(submission_id)
    queue.submit("n")
    assert queue.serve(3).index("n") <= 1


def test_what_is_left_after_a_cancellation_keeps_its_order(queue: Queue, db: Db) -> None:
    """New jobs come after those that still wait, not in the place of those that went."""
    queue.submit("a", 3)
    queue.submit("b", 1)
    queue.bench.store.cancel(2)
    queue.submit("a", 2)
    assert turns(db, "a") == [0, 2, 4, 6, 8]
    queue.bench.store.cancel(6)
    queue.submit("a")
    assert turns(db, "a")[-1] == 8


def aged(db: Db, claims: int) -> list[int]:
    """The priorities of the jobs that so many claims take, one each, the dice being the same every time."""
    db.execute("SELECT setseed(0.42)")
    taken = [value(db, "SELECT id FROM runner.claim('host-a', '{CPU}', '{1}', 60)") for _ in range(claims)]
    return [value(db, "SELECT priority FROM runner.job WHERE id = %s", job) for job in taken]


def test_what_has_waited_for_an_hour_is_served_now_and_then(queue: Queue, db: Db) -> None:
    """One claim in twenty, about; without an hour of waiting none, and the highest class goes on meanwhile."""
    queue.submit("a", 20, priority=-1)
    queue.submit("b", 400)
    assert set(aged(db, 100)) == {0}
    db.execute("UPDATE runner.job SET created_at = now() - interval '61 minutes' WHERE priority = -1")
    taken = Counter(aged(db, 100))
    assert 1 <= taken[-1] <= 15, taken
    assert taken[0] == 100 - taken[-1]


def test_no_class_between_others_waits_for_ever(queue: Queue, db: Db) -> None:
    """The highest never ends, the lowest has a job that is younger, or that has waited for less long."""
    queue.submit("middle", 1)
    queue.submit("low", 20, priority=-1)
    queue.submit("high", 400, priority=1)
    for low_minutes in (1, 90):
        db.execute(
            "UPDATE runner.job SET state = 'queued', lease_owner = NULL, lease_expires_at = NULL,"
            " created_at = now() - CASE priority WHEN 0 THEN 300 WHEN -1 THEN %s ELSE 1 END * interval '1 minute'"
            " WHERE priority < 1",
            (low_minutes,),
        )
        assert aged(db, 100).count(0) == 1


def test_of_several_types_the_oldest_low_job_is_served(bench: Bench, db: Db) -> None:
    """Also where the higher class is another type's; one job, of a type with a free slot, however many it has."""
    bench.board("identity", "A100", "H100")
    for _ in range(3):
        bench.submit(gpu_types=["A100"], priority=-1)
        bench.submit(gpu_types=["H100"])

    def claimed(*free: int) -> list[str]:
        """The types of the jobs that one claim in twenty takes; rolled back."""
        with db.transaction(force_rollback=True):
            db.execute(AGED)
            call = "SELECT gpu_type FROM runner.claim('host-a', '{H100,A100}', %s, 60)"
            return [gpu_type for (gpu_type,) in rows(db, call, list(free))]

    assert claimed(1, 1) == ["H100"]
    db.execute("UPDATE runner.job SET created_at = created_at - interval '61 minutes'")
    assert claimed(9, 9) == ["A100"]
    assert claimed(1, 0) == ["H100"]
    assert claimed(0, 1) == ["A100"]
