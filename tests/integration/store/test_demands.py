"""What a leaderboard demands of a time before it ranks, on a real database."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from runner.base.model import Demand, Job, JobResult, TimingAssurance, Verdict
from runner.extras.boards.again import Selection
from tests.integration.store.conftest import Bench, Db, one, refused, result, rows, run_record, value
from tests.support.jobs import of_submission

SCORE_S = 2.5e-6

#: As KernelBot's own ranking query chooses rows.
KERNELBOT = (
    "SELECT r.score FROM leaderboard.runs r JOIN leaderboard.submission s ON s.id = r.submission_id"
    " WHERE NOT r.secret AND r.score IS NOT NULL AND r.passed ORDER BY r.score"
)


def found(job: Job, timing: str, *, score_s: float = SCORE_S, correctness: str = "judge") -> JobResult:
    """What a daemon writes of a ranked job whose time is worth so much: a score where the board's demand is met."""
    runner: dict[str, Any] = {"host": "h", "assurance": {"correctness": correctness, "timing": timing}}
    demand = Demand() if job.secret else of_submission(job).demand
    ranks = TimingAssurance(timing).satisfies(demand.timing)
    if not ranks:
        runner["unranked"] = {"score_s": score_s, "detail": "the judge's clock cannot vouch for it"}
    leaderboard = run_record(
        "leaderboard", score_s=score_s if ranks else None, system_info={"gpu": "none", "runner": runner}
    )
    return result(Verdict.ACCEPTED, run_record("test"), leaderboard)


def evaluate(bench: Bench, timing: str, *, user_id: str = "u1", **found: Any) -> int:  # noqa: ANN401 - as `found` takes
    """A ranked submission whose two jobs have been evaluated."""
    submission_id = bench.submit(mode="leaderboard", user_id=user_id)
    finish(bench, timing, **found)
    return submission_id


def finish(bench: Bench, timing: str, **changes: Any) -> None:  # noqa: ANN401 - as `found` takes
    """Ends both jobs that wait."""
    for _ in range(2):
        job = bench.claim()
        bench.store.complete(job, found(job, timing, **changes))


def ranked(bench: Bench) -> list[tuple[str, str, str]]:
    """Users in the ranking, and what their times are worth."""
    return [(line.user_id, line.timing, line.correctness) for line in bench.store.ranking("identity")]


def scores(db: Db) -> list[Decimal]:
    """What KernelBot's own query ranks."""
    return [score for (score,) in rows(db, KERNELBOT)]


def status(db: Db, submission_id: int) -> dict[str, Any]:
    """What the status says of a time."""
    columns = "verdict, job_status, score, timing, correctness, unranked"
    return one(db, f"SELECT {columns} FROM runner.status WHERE submission_id = %s", submission_id)  # noqa: S608


def demand(db: Db, *arguments: object) -> int:
    """Calls the function as a frontend would."""
    marks = ", ".join(["%s"] * len(arguments))
    return int(value(db, f"SELECT runner.set_demand({marks})", *arguments))


@pytest.mark.parametrize(
    ("demanded", "ranking"),
    [
        ("claimed", {"claimed", "audited_host", "measured", "audited"}),
        ("measured", {"measured", "audited"}),
        ("audited", {"audited"}),
    ],
)
def test_what_is_below_the_demand_passes_and_does_not_rank(
    bench: Bench, db: Db, demanded: str, ranking: set[str]
) -> None:
    """It is stored without a score and says why; audited_host satisfies no demand. A milder one ranks all of them."""
    bench.board(timing=TimingAssurance(demanded))
    for timing in TimingAssurance:
        submission_id = evaluate(bench, timing, user_id=f"user-{timing}")
        said = status(db, submission_id)
        assert (said["verdict"], said["job_status"], said["timing"]) == ("accepted", "succeeded", timing)
        if timing in ranking:
            assert (said["score"], said["unranked"]) == (Decimal("0.0000025"), None)
        else:
            assert said["score"] is None
            assert said["unranked"] == (
                f"this board ranks {demanded} times only; this time is {timing}: the judge's clock cannot vouch for it"
            )
    assert {timing for _, timing, _ in ranked(bench)} == ranking
    assert len(scores(db)) == len(ranking)
    # As it is hours later: what was withheld when its row was written is copied when it begins to count.
    db.execute("UPDATE runner.score_mark SET run_id = (SELECT max(id) FROM leaderboard.runs)")
    assert {timing for _, timing, _ in ranked(bench)} == ranking
    assert demand(db, "identity", "claimed") == 4 - len(ranking)
    assert len(ranked(bench)) == 4


def test_the_view_demands_even_what_the_writer_of_a_row_did_not(queue: Bench, db: Db) -> None:
    """A row with a score and no word on its time, as KernelBot writes it, ranks on a board that takes claims only."""
    assert one(db, "SELECT * FROM runner.demand") == {"leaderboard": "identity", "timing": "claimed", "tolerance": 0.1}
    evaluate(queue, "audited")
    assert ranked(queue) == [("u1", "audited", "judge")]
    db.execute("UPDATE leaderboard.runs SET system_info = '{}'")
    assert ranked(queue) == [("u1", "claimed", "in_process")]
    db.execute("UPDATE runner.board SET timing = 'measured'")
    assert ranked(queue) == []
    assert status(db, 1)["unranked"] == "this board ranks measured times only; this time is claimed"


def test_another_demand_holds_for_the_scores_that_are_there(queue: Bench, db: Db) -> None:
    """What falls below it leaves KernelBot's ranking too; a milder demand puts the same score back."""
    for number, timing in enumerate(TimingAssurance):
        evaluate(queue, timing, user_id=timing, score_s=(number + 1) * 1e-6)
    before = scores(db)
    assert demand(db, "identity", "measured") == 2
    assert [user for user, _, _ in ranked(queue)] == ["measured", "audited"]
    assert scores(db) == before[2:]
    assert status(db, 1)["unranked"] == "this board ranks measured times only; this time is claimed"
    assert demand(db, "identity", "audited") == 1
    assert status(db, 1)["unranked"] == "this board ranks audited times only; this time is claimed"
    assert demand(db, "identity", "audited") == 0
    assert demand(db, "identity", "claimed") == 3
    assert scores(db) == before
    assert len(ranked(queue)) == 4
    assert status(db, 1)["unranked"] is None
    assert rows(db, "SELECT id FROM leaderboard.runs WHERE system_info #> '{runner,unranked}' IS NOT NULL") == []


def test_what_did_not_rank_can_be_evaluated_again_and_taken_out(bench: Bench, db: Db) -> None:
    """A rerun with a better time ranks, one with a worse time again does not; invalidating works on both."""
    bench.board(timing=TimingAssurance.AUDITED)
    submission_id = evaluate(bench, "measured")
    assert bench.store.rerun(Selection(submission_id=submission_id), reason="again") == 2
    assert status(db, submission_id)["unranked"] is not None
    finish(bench, "audited")
    assert (ranked(bench), status(db, submission_id)["unranked"]) == ([("u1", "audited", "judge")], None)
    bench.store.rerun(Selection(submission_id=submission_id), reason="and again")
    assert len(ranked(bench)) == 1
    finish(bench, "claimed")
    assert (ranked(bench), scores(db)) == ([], [])
    assert bench.store.invalidate(Selection(submission_id=submission_id), reason="odd") == 2
    assert status(db, submission_id)["unranked"] is None
    assert demand(db, "identity", "claimed") == 0
    assert scores(db) == []


def test_a_demand_does_not_bring_back_what_failed_its_secret_run(bench: Bench, db: Db) -> None:
    """The score is put back into its row, and the ranking goes on asking for the secret run."""
    bench.board(timing=TimingAssurance.MEASURED)
    bench.submit(mode="leaderboard")
    public = bench.claim()
    bench.store.complete(public, found(public, "claimed"))
    bench.store.complete(bench.claim(), result(Verdict.WRONG_ANSWER, run_record("test", passed=False)))
    assert demand(db, "identity", "claimed") == 1
    assert ranked(bench) == []


def test_a_job_is_claimed_with_what_its_board_demands(bench: Bench, db: Db) -> None:
    """Both settings reach the daemon; a board that only KernelBot knows has the defaults."""
    bench.board(timing=TimingAssurance.AUDITED, tolerance=0.05)
    bench.board("plain")
    db.execute(
        "DELETE FROM runner.board b USING leaderboard.leaderboard l WHERE l.id = b.leaderboard_id AND l.name = 'plain'"
    )
    bench.submit(mode="leaderboard")
    bench.submit(leaderboard="plain", user_id="u2")
    bench.free_secret_jobs()
    jobs = [of_submission(bench.claim()) for _ in range(3)]
    demands = {(job.leaderboard, job.secret): job.demand for job in jobs}
    strict = Demand(timing=TimingAssurance.AUDITED, tolerance=0.05)
    assert demands == {("identity", False): strict, ("identity", True): strict, ("plain", False): Demand()}


def test_a_setting_that_is_not_given_stays(bench: Bench, db: Db) -> None:
    """One alone can be set; an update of the task leaves both; list and view show them."""
    bench.board(extra={"harness": "program"})
    demand(db, "identity", "audited")
    demand(db, "identity", None, 0.25)
    expected = Demand(timing=TimingAssurance.AUDITED, tolerance=0.25)
    bench.update_board(extra={"harness": "program"}, description="New.")
    assert bench.store.board("identity").demand == expected
    assert [line.demand for line in bench.store.boards()] == [expected]
    assert demand(db, "identity", None, 0.5) == 0
    assert bench.store.board("identity").demand.tolerance == 0.5


BAD_DEMANDS = [
    (("identity", "audited_host"), "KR023", "timing is 'audited_host', expected claimed, measured or audited"),
    (("identity", "Audited"), "KR023", "timing is 'Audited'"),
    (("identity", None, 0.009), "KR024", "tolerance is 0.009, expected 0.01 to 0.5"),
    (("identity", None, 10), "KR024", "tolerance is 10, expected 0.01 to 0.5"),
    (("identity", None, math.nan), "KR024", "tolerance is NaN, expected"),
    (("nope", "audited"), "KR001", "leaderboard 'nope' does not exist"),
]


def test_a_bad_demand_is_refused_and_named(queue: Bench, db: Db) -> None:
    """What was found and what is expected; nothing changes, and the table takes no such value either."""
    for arguments, state, words in BAD_DEMANDS:
        with refused(state, words):
            demand(db, *arguments)
        assert queue.store.board("identity").demand == Demand()
