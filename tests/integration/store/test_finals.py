"""Finals: who takes part, in which order, what is compared, and what comes of it."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from runner.base.errors import SubmissionError
from runner.base.model import FinalJob, JobResult, JobState, Verdict
from tests.integration.store.conftest import Bench, Db, result, rows, value
from tests.integration.store.test_validations import UNTOUCHED, rank
from tests.support import sweeps

HOSTS: Final = ("host-a", "host-b")
#: Score and lower quartile of real evaluations of one kernel in a final, in seconds, on a machine of two cores: 36 at
#: rest, 29 at a load of 4 to 6, where scores spread by a factor of five.
RECORDED: Final = Path(__file__).parents[2] / "fixtures" / "final_scores.json"


@pytest.fixture
def board(bench: Bench, db: Db) -> Bench:
    """A board that has closed, once submissions are in, and two hosts."""
    bench.board()
    for host in HOSTS:
        bench.register(host)
    return bench


def close(db: Db) -> None:
    """Let the board's deadline pass."""
    db.execute("UPDATE leaderboard.leaderboard SET deadline = now()")


def untouched(db: Db) -> list[list[dict[str, Any]]]:
    """Everything that a final must leave alone."""
    queries = (query.replace("sweep_id IS NULL", "mode <> 'final'") for query in UNTOUCHED)
    return [db.execute(query.encode()).fetchall() for query in queries]


def scored(score_s: float | None, p25_s: float | None = None) -> JobResult:
    """What the daemon makes of an evaluation of a final."""
    return result(report={"score_s": score_s, "p25_s": p25_s})


def claim(bench: Bench, host: str) -> FinalJob:
    """The next job of a host, which is of a final."""
    job = bench.claim(host=host)
    assert isinstance(job, FinalJob)
    return job


def play(bench: Bench, score: Callable[[FinalJob, str], JobResult], hosts: tuple[str, ...] = HOSTS) -> list[FinalJob]:
    """Evaluate on these hosts in turns until nothing waits; the jobs as they were claimed."""
    jobs: list[FinalJob] = []
    while True:
        claims = [bench.store.claim(host=host, slots={"CPU": 4}, lease_s=60).jobs for host in hosts]
        if not any(claims):
            return jobs
        for host, claimed in zip(hosts, claims, strict=True):
            for job in claimed:
                assert isinstance(job, FinalJob)
                bench.store.complete(job, score(job, host))
                jobs.append(job)


def test_a_clear_order_is_told_as_soon_as_the_rounds_suffice(board: Bench, finish: Callable[..., None], db: Db) -> None:
    """Each host evaluates everyone once a round, one at a time, in an order of its own, and nothing else changes."""
    ids = rank(board, finish, "a", "b", "c")
    close(db)
    before = untouched(db)
    order = sweeps.final(board.store, "identity", "cpu", top=10, rounds=25, open_board=False)
    assert (order["finalists"], order["hosts"]) == (3, 2)
    board.register("host-c")
    assert board.idle(host="host-c")

    # The last was the best before; only what is measured now counts.
    times = dict(zip(ids, (3e-6, 2e-6, 1e-6), strict=True))
    played = play(board, lambda job, host: scored(times[job.validates] * (1 if host == "host-a" else 1.5)))
    jobs = rows(db, "SELECT only_host, host, round, finalist FROM runner.job WHERE mode = 'final' ORDER BY id")
    assert all(host == only_host for only_host, host, _, _ in jobs)
    # Ten comparisons of three pairs suffice.
    assert [number for _, _, number, _ in jobs] == sorted([1, 2, 3, 4, 5] * 8)
    orders: dict[tuple[str, int], list[int]] = defaultdict(list)
    for _, host, number, finalist in jobs:
        orders[host, number].append(finalist)
    assert {tuple(sorted(numbers)) for numbers in orders.values()} == {(0, 1, 2, 3)}
    assert len({*map(tuple, orders.values())}) > 1
    assert len({(job.final_id, job.round) for job in played}) == 5

    lines, pairs = board.store.final_ranking("identity")
    assert [(line.rank, line.submission_id, line.rank_before) for line in lines] == [
        (1, ids[2], 3), (2, ids[1], 2), (3, ids[0], 1),
    ]  # fmt: skip
    first = lines[0]
    assert (first.evaluations, first.hosts, first.spread_hosts, first.spread_rounds) == (10, 2, 1.5, 1.0)
    assert (first.score_s, first.score_low_s, first.score_high_s) == pytest.approx((1.25e-6, 1e-6, 1.5e-6))
    assert {(pair.first, pair.second, pair.n, pair.wins, pair.told_apart) for pair in pairs} == {
        (0, 1, 0, 0, False), (1, 2, 10, 0, True), (1, 3, 10, 0, True), (2, 3, 10, 0, True),
    }  # fmt: skip
    (pair,) = (pair for pair in pairs if (pair.first, pair.second) == (1, 2))
    assert (pair.ratio, pair.ratio_low, pair.ratio_high) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    progress = sweeps.final_progress(board.store, "identity")
    assert (progress["status"], progress["round"], progress["evaluations"]) == ("completed", 5, 40)
    assert untouched(db) == before


def test_the_statements_of_the_page_hold_a_final(board: Bench, finish: Callable[..., None], db: Db) -> None:
    """Those of docs/operations.md, once the deadline has passed."""
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(SELECT final_id.*?)```", page, re.DOTALL)
    order, progress, ranking, pairs, _ = block.replace("vectoradd", "identity").replace("H100", "CPU").split(";\n")
    rank(board, finish, "a", "b")
    close(db)
    assert rows(db, order) == [(1, 2, 2)]
    play(board, lambda job, _: scored(1e-6 * job.validates))
    assert rows(db, progress) == [("completed", 4, 25)]
    assert [line[0] for line in rows(db, ranking)] == [1, 2]
    assert len(rows(db, pairs)) == 2


def test_those_who_cannot_be_told_apart_share_a_rank(board: Bench, finish: Callable[..., None], db: Db) -> None:
    """After all rounds, also where quartiles and mean times differ in order. Who is marked later leaves the order."""
    ids = rank(board, finish, "a", "b", "c", "d")
    close(db)
    sweeps.final(board.store, "identity", None, top=10, rounds=12, open_board=False)

    def score(job: FinalJob, host: str) -> JobResult:
        flips = 1 + 0.5 * ((job.round + (host == "host-a")) % 2 == (job.validates == ids[0]))
        # Often fast, on the whole slow.
        if job.validates == ids[3]:
            return scored(2e-6, 0.5e-6)
        return scored(9e-6 if job.validates == ids[2] else 1e-6 * flips)

    assert len(play(board, score)) == 12 * 2 * 5
    lines, pairs = board.store.final_ranking("identity", "CPU")
    assert [(line.rank, line.submission_id) for line in lines] == [
        (1, ids[3]), (1, ids[0]), (1, ids[1]), (4, ids[2]),
    ]  # fmt: skip
    (tied,) = (pair for pair in pairs if (pair.first, pair.second) == (1, 2))
    assert (tied.wins, tied.n, tied.told_apart, tied.control) == (12, 24, False, False)
    assert (tied.ratio_low, tied.ratio_high) == pytest.approx((1 / 1.5, 1.5))
    (odd,) = (pair for pair in pairs if (pair.first, pair.second) == (1, 4))
    assert (odd.wins, odd.told_apart) == (0, False)
    assert odd.mean_ratio == pytest.approx(2)
    assert odd.error < 0.05
    db.execute("UPDATE leaderboard.submission SET status = 'hacked' WHERE id = %s", [ids[0]])
    lines, _ = board.store.final_ranking("identity")
    assert [(line.rank, line.submission_id) for line in lines] == [(1, ids[3]), (1, ids[1]), (3, ids[2])]


def test_a_finalist_that_does_not_pass_is_out_and_a_fault_of_ours_is_not_its_own(
    board: Bench, finish: Callable[..., None], db: Db
) -> None:
    """A failed attempt is tried again on the same host; a round without a score is no comparison."""
    ids = rank(board, finish, "a", "b", "c")
    close(db)
    db.execute("UPDATE runner.retry SET pause_s = 0, max_attempts = 2")
    sweeps.final(board.store, "identity", None, top=10, rounds=25, open_board=False)
    first = claim(board, "host-a")
    assert board.store.fail(first, error="no device", report=None, slot="0").state is JobState.QUEUED
    board.look_again()
    assert board.idle(host="host-c")
    again = claim(board, "host-a")
    assert (again.id, again.avoid_slot) == (first.id, "0")
    assert board.store.fail(again, error="no device", report=None, slot="0").state is JobState.DONE

    def score(job: FinalJob, host: str) -> JobResult:
        if job.validates == ids[1] and job.round == 2:
            return result(Verdict.WRONG_ANSWER, report={"score_s": None})
        # Not what the board demands of a time.
        if job.round == 3 and host == "host-b":
            return scored(None)
        return scored(1e-6 * job.validates)

    played = play(board, score)
    assert [job.round for job in played if job.validates == ids[1]].count(2) in (1, 2)
    lines, pairs = board.store.final_ranking("identity")
    assert [(line.rank, line.submission_id, line.fault) for line in lines] == [
        (1, ids[0], None), (2, ids[2], None), (None, ids[1], "wrong_answer in round 2"),
    ]  # fmt: skip
    # Eight comparisons of one pair suffice; one or two rounds lack a score of one.
    (pair,) = (pair for pair in pairs if not pair.control)
    assert 8 <= pair.n <= 9
    db.execute("DELETE FROM runner.final_score WHERE number = 1")
    assert (None, ids[0]) in [(line.rank, line.submission_id) for line in board.store.final_ranking("identity")[0]]


def test_a_final_is_cancelled_paused_and_survives_a_deleted_submission(
    board: Bench, finish: Callable[..., None], db: Db
) -> None:
    """A cancelled one publishes nothing, and another may be ordered; users go before."""
    ids = rank(board, finish, "a", "b", "c")
    sweeps.final(board.store, "identity", None, top=10, rounds=25, open_board=True)
    late = board.submit(user_id="late", mode="test", priority=-999)
    assert board.claim().submission_id == late
    running = claim(board, "host-a")
    board.store.pause_board("identity", reason="look")
    assert board.idle(host="host-b")
    board.store.release(running, reason="draining")
    assert board.idle()
    board.store.resume_board("identity")
    running = claim(board, "host-a")
    assert sweeps.cancel_final(board.store, "identity", "CPU") == 2
    assert board.idle(host="host-b")
    (held,) = board.store.heartbeat(host="host-a", lease_s=60, held=[(running.id, running.attempt)])
    assert held.cancel_requested
    assert board.store.cancelled(running).state is JobState.CANCELLED
    assert sweeps.final_progress(board.store, "identity")["status"] == "cancelled"
    assert board.store.final_ranking("identity") == ([], [])
    with pytest.raises(SubmissionError, match="no final of leaderboard 'identity' runs"):
        sweeps.cancel_final(board.store, "identity", None)

    sweeps.final(board.store, "identity", None, top=10, rounds=25, open_board=True)
    for (gone,) in rows(db, "SELECT DISTINCT validates FROM runner.job WHERE mode = 'final' AND state = 'queued'"):
        db.execute("SELECT runner.delete_submission(%s)", [gone])
    db.execute("UPDATE runner.sweep SET looked_at = '-infinity', swept_at = '-infinity'")
    board.store.reclaim()
    play(board, lambda job, _: scored(1e-6 * job.validates))
    assert sweeps.final_progress(board.store, "identity")["status"] == "completed"
    assert {line.submission_id for line in board.store.final_ranking("identity")[0]} <= {*ids}


#: Arguments that replace those of a final that can be held, and what is said of them.
REFUSED: Final[tuple[tuple[Mapping[str, Any], str], ...]] = (
    ({"leaderboard": "nothing"}, "leaderboard 'nothing' does not exist"),
    ({"gpu_type": "H100"}, "GPU type 'H100' is not offered"),
    ({"open_board": False}, "leaderboard 'identity' is open until .* or with open => true"),
    ({"top": 1}, "the final would have 1 finalists, expected 2 to 50"),
    ({"rounds": 3}, "3 rounds of 2 finalists on 2 hosts, expected 4 to 1000"),
)


def test_what_cannot_be_held_is_refused(board: Bench, finish: Callable[..., None]) -> None:
    """By a sentence that says what was expected: a live host, too, and no other final of the type."""
    rank(board, finish, "a", "b")
    given: dict[str, Any] = {"leaderboard": "identity", "gpu_type": None, "top": 10, "rounds": 25, "open_board": True}
    for changes, sentence in REFUSED:
        with pytest.raises(SubmissionError, match=sentence):
            sweeps.final(board.store, **{**given, **changes})
    for host in HOSTS:
        board.store.drain(host, reason="off")
    with pytest.raises(SubmissionError, match="no host serves CPU now"):
        sweeps.final(board.store, **given)
    board.store.undrain("host-a")
    assert sweeps.final(board.store, **given)["hosts"] == 1
    with pytest.raises(SubmissionError, match="a final of leaderboard 'identity' runs on CPU already"):
        sweeps.final(board.store, **given)


def test_a_host_that_goes_away_holds_no_final_up(board: Bench, finish: Callable[..., None], db: Db) -> None:
    """It is passed over, and goes on in the present round once it is back; while all are away, the final waits."""
    rank(board, finish, "a", "b")
    close(db)
    sweeps.final(board.store, "identity", "cpu", top=10, rounds=8, open_board=False)
    claim(board, "host-b")

    def sweep() -> None:
        db.execute("UPDATE runner.sweep SET looked_at = '-infinity', swept_at = '-infinity'")
        db.execute("SELECT runner.reclaim()")

    def away(*hosts: str) -> None:
        silent = "CASE WHEN name = ANY (%s) THEN interval '11 minutes' ELSE '0' END"
        db.execute(f"UPDATE runner.host SET last_seen = now() - {silent}".encode(), (list(hosts),))  # noqa: S608 - ours
        sweep()

    def waits() -> list[tuple[str, int]]:
        return rows(db, "SELECT only_host, round FROM runner.job WHERE state = 'queued' ORDER BY only_host")

    away("host-b")
    assert waits() == [("host-a", 1)], "what host-b runs is not waited for in vain: its lease ends"
    db.execute("UPDATE runner.lease SET expires_at = now() - interval '1 second'")
    db.execute("UPDATE runner.job SET lease_expires_at = now() - interval '1 second' WHERE state = 'running'")
    sweep()
    away("host-b")
    assert waits() == [("host-a", 1)]
    for _ in range(3):
        board.store.complete(claim(board, "host-a"), scored(1e-3))
    assert waits() == [("host-a", 2)], "the round is over without host-b"
    away("host-a", "host-b")
    assert waits() == [("host-a", 2)], "no round goes by while nobody evaluates"
    away()
    assert waits() == [("host-a", 2), ("host-b", 2)]
    db.execute("UPDATE runner.host SET draining = true WHERE name = 'host-a'")
    sweep()
    assert waits() == [("host-b", 2)]
    db.execute("UPDATE runner.host SET draining = false")
    db.execute("UPDATE runner.host SET gpu_types = '{}' WHERE name = 'host-b'")
    sweep()
    assert waits() == [("host-a", 2)], "its slots are out of use"


@pytest.mark.parametrize("load", ["rest", "busy"])
def test_a_wrong_order_is_declared_in_fewer_than_5_of_100_races(db: Db, load: str) -> None:
    """Of 4,000 each with recorded noise, although everybody looks after each round; 25 suffice for 5 per cent."""
    rounds, races = 25, 4_000
    bounds = np.ones((rounds + 1, rounds + 1))
    pairs = "FROM generate_series(1, 25) AS n CROSS JOIN LATERAL generate_series(0, n) AS k"
    for n, wins, bound in rows(db, f"SELECT n, k, runner.tie_bound(n, k) AS bound {pairs}"):
        bounds[n, wins] = bound
    noise = np.log(json.loads(RECORDED.read_text())[load])
    generator = np.random.default_rng(1)
    numbers = np.arange(1, rounds + 1)

    def race(mean: float, p25: float) -> tuple[float, float]:
        """How often the first, and the second, is declared to be the faster one, by how much slower the second is."""
        first, second = noise[generator.integers(len(noise), size=(2, races, rounds))]
        # No two real times are equal.
        second = second + np.log1p((mean, p25)) + generator.normal(0, 1e-9, second.shape)
        wins = np.cumsum(second[..., 1] > first[..., 1], axis=1)
        lowest = [
            np.stack([np.quantile(times[:, :number, 0], 0.1, axis=1) for number in numbers], axis=1)
            for times in (first, second)
        ]
        ahead = 2 * wins > numbers
        told = (bounds[numbers, wins] <= 0.05) & (ahead == (lowest[0] < lowest[1]))
        of_first = ahead[np.arange(races), np.argmax(told, axis=1)]
        return (told.any(axis=1) & of_first).mean(), (told.any(axis=1) & ~of_first).mean()

    assert sum(race(0, 0)) < 0.05
    for slower in (0.01, 0.02, 0.05):
        right, wrong = race(slower, slower)
        assert wrong < 0.05, slower
    assert right > 0.87
    # Calls that are often faster are no gain if the others cost more.
    assert race(0.20, -0.05)[1] < 0.03


def test_the_bound_is_the_formulas(db: Db) -> None:
    """Also where powers of two leave the range of numbers."""
    for n, wins in ((0, 0), (7, 0), (8, 0), (25, 20), (25, 5), (1000, 600), (60_000, 0)):
        exact = min(1.0, (n + 1) * math.comb(n, wins) / 2**n) if n <= 1000 else 0.0
        bound = value(db, "SELECT runner.tie_bound(%s, %s)", n, wins)
        assert bound == pytest.approx(exact, rel=1e-9, abs=1e-300)
